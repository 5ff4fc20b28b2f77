//! A lock backend of one's own, beside those of polylock and under a scheme of its own: locks in
//! the files of a directory.
//!
//! ```console
//! $ cargo run -p polylock-examples --example custom_backend
//! $ cargo run -p polylock-examples --example custom_backend -- --backend files:/var/lib/locks
//! ```
//!
//! `files.rs` and `record.rs` are all of it: four small traits over one file. When to renew, when a
//! lock is lost, the queue of a process, re-entry, namespaces, releases of guards that are dropped:
//! all that is the same for every backend and comes from `lock_core`. The test is the conformance
//! suite that every backend passes.
//!
//! Exits with 0 if no increment was lost, the tokens grew, and the lock of a holder that died was
//! free after its lease, and not before.

mod files;
mod record;

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use polylock::Registry;
use polylock::prelude::*;
use tokio::task::JoinSet;

use crate::files::FilesBackend;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// A backend that keeps locks in files.
#[derive(Parser)]
struct Options {
    /// Where the locks are; a temporary directory by default.
    #[arg(long, value_name = "URL")]
    backend: Option<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let directory = tempfile::tempdir()?;
    let here = format!("files:{}", directory.path().join("locks").display());
    let backend = options.backend.unwrap_or(here);
    let mut out = io::stdout().lock();
    if let Err(unknown) = polylock::connect(&backend).await {
        writeln!(out, "before it is registered: {unknown}")?;
    }

    let registry = registry()?;
    let (one, other) = (
        registry.connect(&backend).await?,
        registry.connect(&backend).await?,
    );
    let counted = count(
        &[one, Arc::clone(&other)],
        &directory.path().join("counter"),
    )
    .await?;
    writeln!(out, "{TASKS} tasks on two connections added 1: {counted}")?;
    let free = time_until_free(&*other).await?;
    writeln!(
        out,
        "a holder died with a lease of {} ms: free after {} ms",
        TTL.as_millis(),
        free.as_millis()
    )?;
    // The lease was half over at most when the wait began.
    if counted != TASKS || !(TTL / 2..=TTL + Duration::from_secs(2)).contains(&free) {
        return Err("this is not what a lock does".into());
    }
    Ok(())
}

/// All backends that are compiled in, and one more.
fn registry() -> polylock::Result<Registry> {
    polylock::compiled_in().with(FilesBackend)
}

const TASKS: u64 = 100;
const TTL: Duration = Duration::from_secs(1);

/// Lets every task add 1 to the number in a file, by reading it and writing it.
async fn count(connections: &[Arc<dyn DistributedLock>], counter: &Path) -> Result<u64> {
    std::fs::write(counter, "0 0")?;
    let mut tasks = JoinSet::new();
    for (_, locks) in (0..TASKS).zip(connections.iter().cycle()) {
        let (locks, counter) = (Arc::clone(locks), counter.to_owned());
        tasks.spawn(async move { add_one(&*locks, &counter).await });
    }
    tasks.join_all().await.into_iter().collect::<Result<()>>()?;
    Ok(read(counter)?.0)
}

async fn add_one(locks: &dyn DistributedLock, counter: &Path) -> Result<()> {
    let guard = locks.lock("counter").await?;
    let token = guard.fencing_token().map_or(0, u64::from);
    let (count, last) = read(counter)?;
    tokio::task::yield_now().await;
    if token <= last {
        return Err(format!("token {token} comes after {last}").into());
    }
    std::fs::write(counter, format!("{} {token}", count + 1))?;
    guard.release().await?;
    Ok(())
}

fn read(counter: &Path) -> Result<(u64, u64)> {
    let text = std::fs::read_to_string(counter)?;
    let (count, token) = text.split_once(' ').ok_or("this is no counter")?;
    Ok((count.parse()?, token.parse()?))
}

/// Leaves a lock as a process does that is killed, and waits for it.
async fn time_until_free(locks: &dyn DistributedLock) -> Result<Duration> {
    let dies = locks.request("job").ttl(TTL).acquire().await?;
    dies.abandon();
    let begun = Instant::now();
    locks.lock("job").await?.release().await?;
    Ok(begun.elapsed())
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use lock_testkit::harness::Harness;
    use tempfile::TempDir;

    use super::*;
    use crate::files::Files;

    lock_testkit::conformance!(
        harness = Place(tempfile::tempdir().unwrap()),
        skip = [
            Admin, Downgrade, Duplicates, Fair, Faults, Look, Permits, Shared, Taker
        ],
    );

    #[derive(Debug)]
    struct Place(TempDir);

    #[async_trait]
    impl Harness for Place {
        async fn client(&self) -> Arc<dyn DistributedLock> {
            Arc::new(Files::open(self.0.path().into()).unwrap())
        }
    }

    #[tokio::test]
    async fn it_is_reached_by_its_scheme() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("files:{}", directory.path().display());
        let unknown = polylock::connect(&url).await.unwrap_err();
        assert!(
            unknown.message().contains("unknown scheme \"files\""),
            "{unknown}"
        );
        let connect = async || registry().unwrap().connect(&url).await.unwrap();
        let (one, other) = (connect().await, connect().await);
        let counter = directory.path().join("counter");
        assert_eq!(count(&[one, other], &counter).await.unwrap(), TASKS);
    }

    #[tokio::test]
    async fn the_lock_of_a_dead_holder_is_free_after_its_lease() {
        let directory = tempfile::tempdir().unwrap();
        let locks = Files::open(directory.path().into()).unwrap();
        let free = time_until_free(&locks).await.unwrap();
        assert!(free > TTL / 2, "free after {free:?}");
        assert!(free < TTL + Duration::from_secs(5), "free after {free:?}");
    }

    #[tokio::test]
    async fn a_lease_from_before_the_last_boot_is_over() {
        let directory = tempfile::tempdir().unwrap();
        // Token 41, a holder, an end that is far ahead, another boot.
        let line = format!("{:020} {:032x} {:020} {:0>36}\n", 41, 1, u64::MAX, "boot");
        std::fs::write(directory.path().join("6a6f62"), line).unwrap();
        let locks = Files::open(directory.path().into()).unwrap();
        let guard = locks.try_lock("job").await.unwrap().unwrap();
        assert_eq!(guard.fencing_token().map(u64::from), Some(42));
    }

    #[tokio::test]
    async fn a_file_of_somebody_else_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("6a6f62");
        std::fs::write(&file, "a letter").unwrap();
        let locks = Files::open(directory.path().into()).unwrap();
        let error = locks.try_lock("job").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a letter");
    }
}
