//! One file for each library.

mod advisory;
mod distributed_postgres;
mod distributed_redis;
mod rslock;
mod zookeeper;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lock_bench::report::TargetKind;
use lock_bench::servers;
use lock_bench::subject::{Failure, Subject};
use lock_bench::target::{Opened, Probe, runner};
use polylock::LockUrl;
use tokio::time::{Instant, sleep};

pub(crate) use self::advisory::Advisory;
pub(crate) use self::distributed_postgres::DistributedPostgres;
pub(crate) use self::distributed_redis::DistributedRedis;
pub(crate) use self::rslock::Rslock;
pub(crate) use self::zookeeper::ZooKeeper;

/// The URL of the server, of `LIBRARY+URL`.
fn inner(url: &str) -> Result<&str, Failure> {
    let (_, inner) = url
        .split_once('+')
        .ok_or_else(|| invalid("there is no + in the scheme"))?;
    // What a library says of a wrong URL may have the password in it, and some panic.
    let parsed = LockUrl::parse(inner)?;
    parsed.expect_hosts()?;
    Ok(inner)
}

/// The URL without its password; one that has no hosts may have it anywhere.
fn shown(url: &str) -> String {
    match LockUrl::parse(url) {
        Ok(url) if !url.hosts().is_empty() => url.to_string(),
        _ => "(not a URL)".to_owned(),
    }
}

/// What is measured.
fn opened(library: &str, subject: impl Subject) -> Opened {
    let library = library.to_owned();
    Opened::new(TargetKind::Peer { library }, runner(subject))
}

/// What asks its server.
async fn probe(url: &str) -> Result<Option<Arc<dyn Probe>>, Failure> {
    servers::probe(&LockUrl::parse(inner(url)?)?).await
}

/// Attempts every `pause` until it succeeds or the time is over, for a library that does not wait.
async fn poll<T, F>(
    pause: Duration,
    wait: Option<Duration>,
    attempt: impl Fn() -> F,
) -> Result<Option<T>, Failure>
where
    F: Future<Output = Result<Option<T>, Failure>>,
{
    let deadline = wait.and_then(|wait| Instant::now().checked_add(wait));
    loop {
        if let Some(held) = attempt().await? {
            return Ok(Some(held));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(None);
        }
        sleep(pause).await;
    }
}

fn failed(error: impl Error + 'static) -> Failure {
    Failure::of("failed", &error)
}

fn invalid(message: &str) -> Failure {
    Failure::new("invalid", message)
}
