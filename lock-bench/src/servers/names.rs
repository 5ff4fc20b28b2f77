//! Names of servers, of locks in a path, and of holders.

#[cfg(any(feature = "etcd", feature = "zk"))]
use polylock::{Host, LockUrl};

#[cfg(any(feature = "etcd", feature = "zk"))]
use crate::subject::Failure;

/// The hosts of a URL as `host:port`.
#[cfg(any(feature = "etcd", feature = "zk"))]
pub(super) fn addresses(url: &LockUrl, default_port: u16) -> Result<Vec<String>, Failure> {
    let address = |host: &Host| match (host.name.contains(':'), host.port_or(default_port)) {
        (true, port) => format!("[{}]:{port}", host.name),
        (false, port) => format!("{}:{port}", host.name),
    };
    Ok(url.expect_hosts()?.iter().map(address).collect())
}

/// The name of a lock as one level of a path.
#[cfg(any(feature = "etcd", feature = "zk"))]
pub(super) fn segment(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// What no other acquisition of any process has: 32 hex digits.
#[cfg_attr(
    not(any(
        feature = "etcd",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "zk"
    )),
    expect(dead_code, reason = "the bare commands of servers need it")
)]
pub(super) fn unique() -> String {
    format!("{:032x}", fastrand::u128(..))
}
