//! A lease without renewal: it is free after its time, and not before.

use std::time::{Duration, Instant};

use polylock::prelude::*;
use polylock::{HealthCheck, Wait};

use super::{Outcome, PATIENCE, Pair};
use crate::commands::doctor::timing::exact;
use crate::output::human;

pub(super) async fn try_it(pair: Pair<'_>, key: String) -> Outcome<HealthCheck> {
    match leave(pair, &key, SHORT).await {
        // The answer to the first request, on a new connection, may take longer than such a lease.
        Err(error) if error.is_retryable() => leave(pair, &key, LONG).await,
        outcome => outcome,
    }
}

/// Leaves a lease of this length to its time, and waits until it is free.
async fn leave(pair: Pair<'_>, key: &str, ttl: Duration) -> Outcome<HealthCheck> {
    let lease = pair
        .first
        .request(key)
        .ttl(ttl)
        .wait(Wait::AtMost(PATIENCE))
        .manual_renewal();
    let guard = lease.acquire().await?;
    let began = Instant::now();
    let valid = guard.valid_until().map(tokio::time::Instant::into_std);
    guard.abandon();
    let next = pair
        .second
        .request(key)
        .wait(Wait::AtMost(PATIENCE))
        .acquire()
        .await?;
    let (granted, took) = (Instant::now(), began.elapsed());
    next.release().await?;
    Ok(judge(ttl, took, valid.is_some_and(|valid| granted < valid)))
}

fn judge(ttl: Duration, took: Duration, was_held: bool) -> HealthCheck {
    let what = format!(
        "a lease of {} that nobody renewed was free after {}",
        human(ttl),
        exact(took)
    );
    if was_held {
        return HealthCheck::error(
            CHECK,
            what,
            "somebody else got the lock while its holder relied on it",
            "look whether the clock of the server was set, or whether it lost data",
        );
    }
    if took > ttl + SLACK {
        return HealthCheck::warning(
            CHECK,
            what,
            "the locks of a process that died stay taken for longer than their ttl",
            "look whether the server is overloaded, or its clock was set",
        );
    }
    HealthCheck::ok(CHECK, what)
}

const CHECK: &str = "expiry";

/// The shortest lease that there is.
const SHORT: Duration = polylock::AcquireRequest::MIN_TTL;

/// For a machine that has no time.
const LONG: Duration = Duration::from_secs(5);

/// What polling and a busy server may add.
const SLACK: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use polylock::Status;
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
        assert_eq!((found.id, found.status), ("expiry", Status::Ok), "{found}");
    }

    #[test]
    fn too_early_is_an_error_and_too_late_a_warning() {
        let late = SHORT + SLACK + Duration::from_millis(1);
        for (took, was_held, status) in [
            (SHORT, false, Status::Ok),
            (SHORT / 2, true, Status::Error),
            (late, false, Status::Warning),
        ] {
            assert_eq!(judge(SHORT, took, was_held).status, status);
        }
    }
}
