//! A lock is broken by one connection: its holder at the other is notified.

use std::time::{Duration, Instant};

use polylock::admin::LockAdmin;
use polylock::prelude::*;
use polylock::{ErrorKind, HealthCheck, LockKey};

use super::{Outcome, Pair};
use crate::commands::doctor::timing::exact;
use crate::output::human;

pub(super) async fn try_it(pair: Pair<'_>, key: String) -> Outcome<HealthCheck> {
    let Some(admin) = pair.second.admin() else {
        let what = "not tried: locks of others cannot be broken here";
        return Ok(HealthCheck::not_checked(CHECK, what));
    };
    hear(pair.first, admin, LockKey::new(key)?, TTL).await
}

/// Has a lock with leases of this length broken, and waits until its holder knows.
async fn hear(
    locks: &dyn DistributedLock,
    admin: &dyn LockAdmin,
    key: LockKey,
    ttl: Duration,
) -> Outcome<HealthCheck> {
    let guard = locks.request(key.clone()).ttl(ttl).acquire().await?;
    let broken = match admin.break_lock(&key, "lockctl doctor").await {
        Ok(broken) => broken,
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unsupported) => {
            guard.release().await?;
            let what = format!(
                "not tried: this user may not break locks ({})",
                error.message()
            );
            return Ok(HealthCheck::not_checked(CHECK, what));
        }
        Err(error) => return Err(error),
    };
    if broken.is_none() {
        guard.release().await?;
        return Ok(HealthCheck::error(
            CHECK,
            "a lock that one connection holds is unknown to another",
            "an operator cannot see or end it, and others may get it as well",
            "look whether both connections end at the same server",
        ));
    }
    let began = Instant::now();
    let heard = tokio::time::timeout(ttl, guard.lost()).await;
    let took = began.elapsed();
    // It is not held any more, and nothing comes of it.
    drop(guard.release().await);
    Ok(match heard {
        Ok(reason) => {
            let what = format!(
                "a holder whose lock was broken heard of it after {}",
                exact(took)
            );
            HealthCheck::ok(CHECK, format!("{what} ({})", reason.as_str()))
        }
        Err(_) => HealthCheck::error(
            CHECK,
            format!(
                "a holder whose lock was broken has not heard of it within {}",
                human(ttl)
            ),
            "it goes on working beside the next holder",
            "look whether both connections end at the same server, and whether replies of it get \
             lost",
        ),
    })
}

const CHECK: &str = "loss-signal";

/// The holder is notified at its next renewal at the latest, a third of this.
const TTL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use polylock::Status;
    use polylock::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn a_holder_hears_that_its_lock_is_broken() {
        let locks = Memory::new();
        let (key, admin) = (LockKey::new("k").unwrap(), locks.admin().unwrap());
        let found = hear(&locks, admin, key, Duration::from_secs(3))
            .await
            .unwrap();
        assert_eq!(found.status, Status::Ok, "{found}");
        assert!(found.summary.ends_with("(broken)"), "{found}");
        assert!(locks.try_lock("k").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn an_administration_of_another_server_is_an_error() {
        let (locks, other) = (Memory::new(), Memory::new());
        let (key, admin) = (LockKey::new("k").unwrap(), other.admin().unwrap());
        let found = hear(&locks, admin, key, Duration::from_secs(3))
            .await
            .unwrap();
        assert_eq!(found.status, Status::Error, "{found}");
        assert!(locks.try_lock("k").await.unwrap().is_some());
    }
}
