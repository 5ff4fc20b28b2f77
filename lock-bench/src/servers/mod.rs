//! What servers say of themselves, and their bare commands: the minimal ones that exclude.

#![cfg_attr(
    not(any(feature = "mysql", feature = "postgres")),
    expect(
        clippy::unused_async,
        unused_variables,
        reason = "only databases have tables, and a build may have no server at all"
    )
)]

#[cfg(feature = "etcd")]
mod etcd;
mod mutex;
mod names;
mod poll;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql;
#[cfg(test)]
#[cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zk"
))]
mod tests;
#[cfg(feature = "zk")]
mod zookeeper;

use std::sync::Arc;
#[cfg(any(feature = "etcd", feature = "zk"))]
use std::time::Duration;

use async_trait::async_trait;
use polylock::LockUrl;

use crate::connection::Opened;
use crate::probe::{Probe, TargetFacts, facts};
#[cfg(any(feature = "etcd", feature = "zk"))]
use crate::subject::Subject;
use crate::subject::{Failure, UNSUPPORTED};

/// Connects to what asks the server behind the URL of a backend, which has no parameters of layers;
/// none for a backend without a server. Several servers at a time and TLS are not spoken: then its
/// facts say so, and nothing else is known.
pub(crate) async fn probe(url: &LockUrl) -> Result<Option<Arc<dyn Probe>>, Failure> {
    if let Some(why) = unsupported(url)? {
        return Ok(Some(Arc::new(Unsupported(why))));
    }
    match url.scheme() {
        #[cfg(feature = "etcd")]
        "etcd" => etcd::probe(url).await.map(Some),
        #[cfg(any(feature = "mysql", feature = "postgres"))]
        "mysql" | "mariadb" | "postgres" | "postgresql" => sql::probe(url).await.map(Some),
        #[cfg(feature = "redis")]
        "redis" | "redis+unix" => redis::probe(url).await.map(Some),
        #[cfg(feature = "zk")]
        "zk" | "zookeeper" => zookeeper::probe(url).await.map(Some),
        _ => Ok(None),
    }
}

/// Connects the bare commands on the server behind the URL of the target `of`, with its namespace;
/// none where [`probe`] asks no server. Bare statements of a database have a table of the run with
/// this number, which all its processes share; [`clear`] removes it.
///
/// Fails with the kind `refused` if this user may not have them. A dropped future may have made the
/// table.
pub(crate) async fn bare(url: &LockUrl, run: u64, of: &str) -> Result<Option<Opened>, Failure> {
    if unsupported(url)?.is_some() {
        return Ok(None);
    }
    match url.scheme() {
        "memory" => Ok(Some(mutex::bare(of))),
        #[cfg(feature = "etcd")]
        "etcd" => etcd::bare(url, of).await.map(Some),
        #[cfg(any(feature = "mysql", feature = "postgres"))]
        "mysql" | "mariadb" | "postgres" | "postgresql" => sql::bare(url, run, of).await,
        #[cfg(feature = "redis")]
        "redis" | "redis+unix" => redis::bare(url, of).await.map(Some),
        #[cfg(feature = "zk")]
        "zk" | "zookeeper" => zookeeper::bare(url, of).await.map(Some),
        _ => Ok(None),
    }
}

/// Acquires and releases a bare lock, so that a user who may not do that is told before the run.
#[cfg(any(feature = "etcd", feature = "zk"))]
async fn try_out(lock: &impl Subject) -> Result<(), Failure> {
    let first = lock.key(&names::unique(), Duration::from_secs(5))?;
    match Box::pin(lock.acquire(&first, Duration::ZERO)).await? {
        Some(held) => lock.release(held).await,
        None => Ok(()),
    }
}

/// Removes what [`bare`] has made for the run with this number. A failure names what stays.
pub(crate) async fn clear(url: &LockUrl, run: u64) -> Result<(), Failure> {
    match url.scheme() {
        #[cfg(any(feature = "mysql", feature = "postgres"))]
        "mysql" | "mariadb" | "postgres" | "postgresql" => sql::clear(url, run).await,
        _ => Ok(()),
    }
}

fn unsupported(url: &LockUrl) -> Result<Option<&'static str>, Failure> {
    let (scheme, mut params) = (url.scheme(), url.params());
    if matches!(scheme, "etcds" | "rediss") || params.bool("tls")? == Some(true) {
        return Ok(Some("is not asked: the benchmark speaks no TLS with it"));
    }
    Ok(match scheme {
        "redis-cluster" | "redis-sentinel" | "redlock" => {
            Some("are not asked: the benchmark asks one server, and these are several")
        }
        "zk" | "zookeeper" if params.string("auth") == Some("sasl") => {
            Some("is not asked: the benchmark does not log in by SASL")
        }
        _ => None,
    })
}

/// Stands for servers of which nothing is known, and says why.
struct Unsupported(&'static str);

#[async_trait]
impl Probe for Unsupported {
    async fn ping(&self) -> Result<(), Failure> {
        Err(Failure::new(UNSUPPORTED, format!("the server {}", self.0)))
    }

    async fn facts(&self) -> Result<TargetFacts, Failure> {
        Ok(facts([("server", self.0.to_owned())]))
    }
}
