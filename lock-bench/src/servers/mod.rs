//! What servers say of themselves, and the least commands of their clients that exclude.

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
use crate::target::{Bare, Opened, Probe};

/// What is known of a server besides its locks.
#[derive(Clone, Debug)]
pub struct Server {
    probe: Arc<dyn Probe>,
    bare: Option<Bare>,
}

impl Server {
    /// What asks it, on a connection of its own.
    #[must_use]
    pub fn probe(&self) -> &Arc<dyn Probe> {
        &self.probe
    }

    /// The least commands that exclude there.
    #[must_use]
    pub fn bare(&self) -> Option<&Bare> {
        self.bare.as_ref()
    }

    /// Adds it to what is measured.
    pub(crate) fn beside(self, opened: Opened) -> Opened {
        let opened = opened.with_probe(self.probe);
        match self.bare {
            Some(bare) => opened.with_bare(bare),
            None => opened,
        }
    }

    #[cfg_attr(
        not(any(
            feature = "mysql",
            feature = "postgres",
            feature = "redis",
            feature = "zk"
        )),
        expect(dead_code, reason = "no server is compiled in")
    )]
    fn new(probe: impl Probe + 'static, bare: Option<Bare>) -> Self {
        Self {
            probe: Arc::new(probe),
            bare,
        }
    }

    /// One that is not asked, for this reason.
    fn unasked(why: &'static str) -> Self {
        Self {
            probe: Arc::new(Unasked(why)),
            bare: None,
        }
    }
}

/// Connects to the server behind the URL of a backend, which has no parameters of layers; none for
/// a backend without a server. Several servers at a time and TLS are not spoken: then its facts say
/// so, and nothing else is known.
///
/// # Errors
///
/// If there is no connection, or the server refuses what its clients need.
///
/// # Cancel safety
///
/// A dropped future closes what it opened. It may have made the table that the bare statements of a
/// database need.
#[cfg_attr(
    not(any(
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "zk"
    )),
    expect(clippy::unused_async, reason = "no server is compiled in")
)]
pub async fn of(url: &LockUrl) -> Result<Option<Server>, Failure> {
    if speaks_tls(url)? {
        return Ok(Some(Server::unasked(
            "is not asked: the benchmark speaks no TLS with it",
        )));
    }
    Ok(Some(match url.scheme() {
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => mysql::open(url).await?,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres::open(url).await?,
        #[cfg(feature = "redis")]
        "redis" | "redis+unix" => redis::open(url).await?,
        #[cfg(feature = "zk")]
        "zk" | "zookeeper" => zookeeper::open(url).await?,
        "redis-cluster" | "redis-sentinel" | "redlock" => {
            Server::unasked("are not asked: the benchmark asks one server, and these are several")
        }
        _ => return Ok(None),
    }))
}

fn speaks_tls(url: &LockUrl) -> Result<bool, Failure> {
    let is_on = url.params().bool("tls")?;
    Ok(url.scheme() == "rediss" || is_on == Some(true))
}
