//! A lease that nobody renews: it is free after its time, and not before.

use std::time::{Duration, Instant};

use polylock::prelude::*;
use polylock::{Finding, Wait};

use super::{Outcome, PATIENCE, Pair};
use crate::commands::doctor::terms::exact;
use crate::text::human;

pub(super) async fn try_it(pair: Pair<'_>, key: String) -> Outcome<Finding> {
    let guard = pair
        .first
        .request(&*key)
        .ttl(TTL)
        .manual_renewal()
        .acquire()
        .await?;
    let began = Instant::now();
    let valid = guard.valid_until().map(tokio::time::Instant::into_std);
    guard.abandon();
    let next = pair
        .second
        .request(&*key)
        .wait(Wait::AtMost(PATIENCE))
        .acquire()
        .await?;
    let (granted, took) = (Instant::now(), began.elapsed());
    next.release().await?;
    Ok(judge(took, valid.is_some_and(|valid| granted < valid)))
}

fn judge(took: Duration, was_held: bool) -> Finding {
    let what = format!(
        "a lease of {} that nobody renewed was free after {}",
        human(TTL),
        exact(took)
    );
    if was_held {
        return Finding::error(
            CHECK,
            what,
            "somebody else got the lock while its holder relied on it",
            "look whether the clock of the server was set, or whether it lost data",
        );
    }
    if took > TTL + SLACK {
        return Finding::warning(
            CHECK,
            what,
            "the locks of a process that died stay taken for longer than their ttl",
            "look whether the server is overloaded, or its clock was set",
        );
    }
    Finding::good(CHECK, what)
}

const CHECK: &str = "expiry";

/// The shortest lease that there is.
const TTL: Duration = polylock::AcquireRequest::MIN_TTL;

/// What polling and a busy server may add.
const SLACK: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use polylock::Verdict;
    use polylock::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn an_abandoned_lease_is_free_after_its_time() {
        let locks = Memory::new();
        let pair = Pair {
            first: &locks,
            second: &locks,
        };
        let found = try_it(pair, "k".to_owned()).await.unwrap();
        assert_eq!(
            (found.check, found.verdict),
            ("expiry", Verdict::Good),
            "{found}"
        );
    }

    #[test]
    fn too_early_is_an_error_and_too_late_a_warning() {
        let late = TTL + SLACK + Duration::from_millis(1);
        for (took, was_held, verdict) in [
            (TTL, false, Verdict::Good),
            (TTL / 2, true, Verdict::Error),
            (late, false, Verdict::Warning),
        ] {
            assert_eq!(judge(took, was_held).verdict, verdict);
        }
    }
}
