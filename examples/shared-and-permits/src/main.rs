//! More than one exclusive lock: readers that share, permits, re-entry, and work that stops before
//! its lease ends.
//!
//! ```console
//! $ cargo run -p shared-and-permits
//! $ cargo run -p shared-and-permits --features polylock/redis -- redis://localhost
//! ```
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use polylock::prelude::*;
use polylock::{FencingToken, Owner};
use tokio::task::JoinSet;
use tokio::time::sleep;

type Locks = Arc<dyn DistributedLock>;

const READERS: usize = 5;
const PERMITS: NonZeroU32 = NonZeroU32::new(3).expect("three is not zero");
const CALLERS: usize = 12;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    run(url.as_deref().unwrap_or("memory:shared-and-permits")).await
}

async fn run(url: &str) -> Result<()> {
    let locks = polylock::connect(url).await?;
    // Not every backend has every mode; a program that needs one says so at its start.
    let has = locks.capabilities();
    ensure!(has.shared && has.permits, "{} lacks a mode", has.backend);
    readers_share(&locks).await?;
    permits_limit(&locks).await?;
    owner_reenters(&locks).await?;
    batch_fits_lease(&locks).await
}

/// Readers hold the lock together and keep a writer out.
async fn readers_share(locks: &Locks) -> Result<()> {
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let reader = locks.request("settings").shared();
        readers.push(reader.acquire().await?);
    }
    let early = locks.try_lock("settings").await?;
    for reader in readers {
        reader.release().await?;
    }
    let writer = locks.lock("settings").await?;
    let late = locks.request("settings").shared().try_acquire().await?;
    let excluded = early.is_none() && late.is_none();
    writer.release().await?;
    println!(
        "shared    {READERS} readers at once, writer and readers exclude each other: {excluded}"
    );
    ensure!(excluded, "a writer and a reader held the lock at once");
    Ok(())
}

/// At most three of twelve call a service with a quota at the same time.
async fn permits_limit(locks: &Locks) -> Result<()> {
    let (calling, max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (locks, calling, max) = (Arc::clone(locks), Arc::clone(&calling), Arc::clone(&max));
        callers.spawn(async move {
            let permit = locks.request("geocoder").permit(PERMITS).acquire().await?;
            max.fetch_max(calling.fetch_add(1, SeqCst) + 1, SeqCst);
            sleep(Duration::from_millis(50)).await;
            calling.fetch_sub(1, SeqCst);
            permit.release().await
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    let max = max.load(SeqCst);
    println!("permits   {CALLERS} callers, {max} at once of at most {PERMITS}");
    ensure!(max == PERMITS.get() as usize, "{max} callers at once");
    Ok(())
}

/// A function that holds a lock calls another one that acquires it.
async fn owner_reenters(locks: &Locks) -> Result<()> {
    // Ownership is a value, not the thread or the task: pass it to whoever may re-enter.
    let owner = Owner::new();
    let guard = locks.request("order/42").owner(&owner).acquire().await?;
    let (outer, inner) = (guard.fencing_token(), refund(locks, &owner).await?);
    println!("re-entry  outer {outer:?}, inner {inner:?}");
    ensure!(
        outer.is_some() && outer == inner,
        "the inner guard is of another acquisition"
    );
    // The inner guard is gone; the lock stays held until the outer one is released.
    ensure!(guard.is_held() && locks.try_lock("order/42").await?.is_none());

    let stranger = refund(locks, &Owner::new()).await;
    let refused = stranger.err().context("another owner got the lock")?;
    println!("re-entry  another owner: {refused}");
    ensure!(refused.kind() == ErrorKind::Contended);
    guard.release().await?;
    Ok(())
}

async fn refund(locks: &Locks, owner: &Owner) -> polylock::Result<Option<FencingToken>> {
    let request = locks.request("order/42").owner(owner);
    let short = Wait::AtMost(Duration::from_millis(100));
    let guard = request.wait(short).acquire().await?;
    let token = guard.fencing_token();
    guard.release().await?;
    Ok(token)
}

/// A batch job whose lease is not renewed works until the rest of it is too short for the commit.
async fn batch_fits_lease(locks: &Locks) -> Result<()> {
    const LEASE: Duration = Duration::from_secs(2);
    const COMMIT: Duration = Duration::from_secs(1);
    let request = locks.request("batch").ttl(LEASE).manual_renewal();
    let guard = request.acquire().await?;
    let mut items = 0;
    loop {
        tokio::select! {
            biased;
            () = guard.expiring(COMMIT) => break,
            () = sleep(Duration::from_millis(20)) => items += 1,
        }
    }
    // The commit itself, which takes less than was set aside for it.
    sleep(COMMIT / 4).await;
    guard.ensure_held()?;
    println!(
        "expiring  {items} items, committed while held: {}",
        guard.is_held()
    );
    ensure!(items > 0, "no time for one item");
    guard.release().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn modes_do_what_they_say() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
