//! What servers say of themselves, and the least commands of their clients that exclude.

#![cfg_attr(
    not(any(feature = "mysql", feature = "postgres")),
    expect(
        clippy::unused_async,
        unused_variables,
        reason = "only databases have tables, and a build may have no server at all"
    )
)]

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql;
#[cfg(test)]
#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zk"
))]
mod testing;
mod unasked;
#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zk"
))]
mod unique;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod until;
#[cfg(feature = "zk")]
mod zookeeper;

use std::sync::Arc;

use polylock::LockUrl;

use self::unasked::Unasked;
use crate::subject::Failure;
use crate::target::{Bare, Probe};

/// Connects to what asks the server behind the URL of a backend, which has no parameters of layers;
/// none for a backend without a server. Several servers at a time and TLS are not spoken: then its
/// facts say so, and nothing else is known.
///
/// # Errors
///
/// If there is no connection.
///
/// # Cancel safety
///
/// A dropped future closes what it opened.
pub async fn probe(url: &LockUrl) -> Result<Option<Arc<dyn Probe>>, Failure> {
    if let Some(why) = unasked(url)? {
        return Ok(Some(Arc::new(Unasked(why))));
    }
    match url.scheme() {
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => mysql::probe(url).await.map(Some),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres::probe(url).await.map(Some),
        #[cfg(feature = "redis")]
        "redis" | "redis+unix" => redis::probe(url).await.map(Some),
        #[cfg(feature = "zk")]
        "zk" | "zookeeper" => zookeeper::probe(url).await.map(Some),
        _ => Ok(None),
    }
}

/// Connects the least commands that exclude on the server behind the URL of a backend, with its
/// namespace; none where [`probe`] asks no server. Bare statements of a database have a table of the
/// run with this number, which all its processes share; [`clear`] removes it.
///
/// # Errors
///
/// If there is no connection, and of the kind `refused` if this user may not have them.
///
/// # Cancel safety
///
/// A dropped future closes what it opened. It may have made the table.
pub async fn bare(url: &LockUrl, run: u64) -> Result<Option<Bare>, Failure> {
    if unasked(url)?.is_some() {
        return Ok(None);
    }
    match url.scheme() {
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => mysql::bare(url, run).await,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres::bare(url, run).await,
        #[cfg(feature = "redis")]
        "redis" | "redis+unix" => redis::bare(url).await.map(Some),
        #[cfg(feature = "zk")]
        "zk" | "zookeeper" => zookeeper::bare(url).await.map(Some),
        _ => Ok(None),
    }
}

/// Removes what [`bare`] has made for the run with this number.
///
/// # Errors
///
/// If something stays; the message names it.
///
/// # Cancel safety
///
/// It may be removed or not.
pub async fn clear(url: &LockUrl, run: u64) -> Result<(), Failure> {
    if unasked(url)?.is_some() {
        return Ok(());
    }
    match url.scheme() {
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => mysql::clear(url, run).await,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres::clear(url, run).await,
        _ => Ok(()),
    }
}

/// Why a server is not asked.
fn unasked(url: &LockUrl) -> Result<Option<&'static str>, Failure> {
    if speaks_tls(url)? {
        return Ok(Some("is not asked: the benchmark speaks no TLS with it"));
    }
    Ok(match url.scheme() {
        "redis-cluster" | "redis-sentinel" | "redlock" => {
            Some("are not asked: the benchmark asks one server, and these are several")
        }
        "zk" | "zookeeper" if url.params().string("auth") == Some("sasl") => {
            Some("is not asked: the benchmark does not log in by SASL")
        }
        _ => None,
    })
}

fn speaks_tls(url: &LockUrl) -> Result<bool, Failure> {
    let is_on = url.params().bool("tls")?;
    Ok(url.scheme() == "rediss" || is_on == Some(true))
}
