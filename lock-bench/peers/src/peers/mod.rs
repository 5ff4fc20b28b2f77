//! One file for each library.

pub(crate) mod advisory;
pub(crate) mod distributed_postgres;
pub(crate) mod distributed_redis;
pub(crate) mod rslock;
pub(crate) mod zookeeper;

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock::LockUrl;
use polylock_bench::report::TargetKind;
use polylock_bench::servers;
use polylock_bench::subject::{Failure, Subject};
use polylock_bench::target::{Opened, Opener, Probe, runner};
use tokio::time::{Instant, sleep};

/// Opens URLs of one library.
#[derive(Debug)]
pub(crate) struct Peer {
    scheme: &'static str,
    /// Connects to the server with this URL.
    open: fn(String) -> Opening,
}

type Opening = Pin<Box<dyn Future<Output = Result<Opened, Failure>> + Send>>;

#[async_trait]
impl Opener for Peer {
    fn schemes(&self) -> Vec<&'static str> {
        vec![self.scheme]
    }

    async fn open(&self, url: &str) -> Result<Opened, Failure> {
        (self.open)(inner(url)?.to_owned()).await
    }

    async fn probe(&self, url: &str) -> Result<Option<Arc<dyn Probe>>, Failure> {
        servers::probe(&LockUrl::parse(inner(url)?)?).await
    }

    /// Without the password; a URL that has no hosts may have it anywhere.
    fn shown(&self, url: &str) -> String {
        match LockUrl::parse(url) {
            Ok(url) if !url.hosts().is_empty() => url.to_string(),
            _ => "(not a URL)".to_owned(),
        }
    }
}

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

/// What is measured.
fn opened(library: &str, subject: impl Subject) -> Opened {
    let library = library.to_owned();
    Opened::new(TargetKind::Peer { library }, runner(subject))
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
