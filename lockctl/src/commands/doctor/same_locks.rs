//! Whether two URLs lead to the same locks.

use polylock::prelude::*;
use polylock::{Error, HealthCheck};

use super::target::{bounded, fault};
use super::trial::Scratch;
use crate::commands::app::SHUTDOWN;

/// Takes a lock by way of the first URL, and tries to take it by way of the second.
pub(super) async fn check(first: &str, second: &str) -> HealthCheck {
    match compare(first, second).await {
        Ok(true) => HealthCheck::ok(
            ID,
            "a lock that is held by way of the first URL is held here",
        ),
        Ok(false) => HealthCheck::error(
            ID,
            "a lock that is held by way of the first URL was acquired here",
            "what runs with one of these URLs excludes nothing that runs with the other",
            "give both the same server, database, namespace, table and mode",
        ),
        Err(error) => fault(&error, ID),
    }
}

/// For services of which one grants no lock. The reason has been reported.
pub(super) fn not_checked() -> HealthCheck {
    HealthCheck::not_checked(ID, "no lock was acquired by way of one of the URLs")
}

async fn compare(first: &str, second: &str) -> Result<bool, Error> {
    let registry = polylock::compiled_in();
    let first = bounded(registry.connect(first)).await?;
    let second = bounded(registry.connect(second)).await?;
    let found = bounded(is_held_by_both(&*first, &*second)).await;
    // Also after an error: granted locks are released before the program ends.
    tokio::join!(first.shutdown(SHUTDOWN), second.shutdown(SHUTDOWN));
    found
}

async fn is_held_by_both(
    first: &dyn DistributedLock,
    second: &dyn DistributedLock,
) -> Result<bool, Error> {
    let key = Scratch::new().key(ID);
    let held = first.lock(&*key).await?;
    let too = second.try_lock(&*key).await?;
    // A lock that was lost meanwhile may be acquired by anyone.
    held.ensure_held()?;
    let is_same = too.is_none();
    held.release().await?;
    if let Some(too) = too {
        too.release().await?;
    }
    Ok(is_same)
}

const ID: &str = "same-locks";
