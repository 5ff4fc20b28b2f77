//! What the start does not look at: what locks set aside, or need later.

use lock_core::Finding;

use super::facts::{Facts, Wanted};
use crate::config::SqlMode;
use crate::database::LISTENER_SILENCE;

/// Sessions of locks say themselves after which silence they end, and other connections lift the
/// time-out, but for the one that listens: it is nothing without a server that keeps it.
pub(super) fn idle_timeout(facts: &Facts, wanted: &Wanted) -> Finding {
    let names = [
        "idle_session_timeout",
        "idle_in_transaction_session_timeout",
    ];
    let [session, transaction] = names.map(|name| facts.limit(name));
    if wanted.listens
        && let Some(limit) = session.filter(|limit| *limit <= LISTENER_SILENCE)
    {
        return Finding::warning(
            "idle-timeout",
            format!("idle_session_timeout is {limit:?}"),
            "the server ends the connection that listens for locks that are given back, and waiters \
             have to ask",
            "lift it for this user, or write notify=off",
        );
    }
    let said: Vec<_> = names
        .iter()
        .zip([session, transaction])
        .filter_map(|(name, limit)| Some(format!("{name} is {:?}", limit?)))
        .collect();
    let what = match (said.is_empty(), wanted.mode) {
        (true, _) => "the server ends no session for being idle".to_owned(),
        (false, SqlMode::Lease) => format!("{}, and no lease needs a session", said.join(", ")),
        (false, _) => {
            let own = wanted.session_timeout;
            format!(
                "{}, and sessions of locks set it to {own:?}",
                said.join(", ")
            )
        }
    };
    Finding::good("idle-timeout", what)
}

/// `are_set` says whether the server lets a session set how it finds out that its client is gone.
pub(super) fn keepalive(facts: &Facts, wanted: &Wanted, are_set: bool) -> Finding {
    if wanted.mode == SqlMode::Lease {
        let what = "no lease depends on a connection";
        return Finding::good("keepalive", what);
    }
    let own = wanted.session_timeout;
    if wanted.is_pooled {
        let what =
            format!("a pooler is in the path, and transactions of locks end when idle for {own:?}");
        return Finding::good("keepalive", what);
    }
    if are_set {
        let what = format!("sessions of locks end {own:?} after their host has vanished");
        return Finding::good("keepalive", what);
    }
    let idle = facts.setting("tcp_keepalives_idle");
    Finding::warning(
        "keepalive",
        format!("sessions cannot set tcp_user_timeout, and tcp_keepalives_idle is {idle} s"),
        "a host that vanishes while it waits keeps its place in the queue until TCP gives up",
        "run the server on a system with TCP_USER_TIMEOUT, or use mode=lease",
    )
}
