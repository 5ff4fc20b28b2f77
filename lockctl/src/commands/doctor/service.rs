//! What the URL of a lock service says without connecting.

use std::path::PathBuf;
use std::time::Duration;

use polylock::LockUrl;

use super::terms::USUAL_SESSION;

/// Where somebody has to listen for a service to be there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Socket(PathBuf),
    Tcp { name: String, port: u16 },
}

/// How many of its places a service needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Needed {
    All,
    One,
}

/// Where the service of a URL listens; nowhere if it is in this process or a file.
pub(super) fn places(url: &LockUrl) -> Vec<Place> {
    if url.scheme() == "redis+unix" {
        return vec![Place::Socket(url.path().into())];
    }
    let Some(port) = port(url.scheme()) else {
        return Vec::new();
    };
    let place = |host: &polylock::Host| {
        let port = host.port_or(port);
        if !host.name.starts_with('/') {
            let name = host.name.clone();
            return Place::Tcp { name, port };
        }
        let path = PathBuf::from(&host.name);
        match is_postgres(url.scheme()) {
            true => Place::Socket(path.join(format!(".s.PGSQL.{port}"))),
            false => Place::Socket(path),
        }
    };
    url.hosts().iter().map(place).collect()
}

pub(super) fn needed(url: &LockUrl) -> Needed {
    match url.scheme() {
        "redis-cluster" | "redis-sentinel" | "redlock" | "zk" | "zookeeper" => Needed::One,
        _ => Needed::All,
    }
}

/// Whether a client that speaks TLS without being asked is understood there.
pub(super) fn begins_with_tls(scheme: &str) -> bool {
    scheme.starts_with("redis") || matches!(scheme, "redlock" | "zk" | "zookeeper")
}

/// The port that a service has unless the URL says another one; none if it has no port.
fn port(scheme: &str) -> Option<u16> {
    Some(match scheme {
        "mariadb" | "mysql" => 3306,
        "redis" | "redis-cluster" | "rediss" | "redlock" => 6379,
        "redis-sentinel" => 26379,
        "zk" | "zookeeper" => 2181,
        scheme if is_postgres(scheme) => 5432,
        _ => return None,
    })
}

fn is_postgres(scheme: &str) -> bool {
    matches!(scheme, "postgres" | "postgresql")
}

/// The time-out of sessions that is asked for. Another one that a server grants is told by a check.
pub(super) fn session_timeout(url: &LockUrl) -> Duration {
    let asked = url.params().duration("session-timeout");
    asked.ok().flatten().unwrap_or(USUAL_SESSION)
}

/// Whether each connection has locks of its own, so that two of them have nothing in common.
pub(super) fn is_private(url: &LockUrl) -> bool {
    url.scheme() == "memory" && url.path().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_somebody_listens() {
        let tcp = |name: &str, port| Place::Tcp {
            name: name.to_owned(),
            port,
        };
        let table = [
            ("redis://cache", vec![tcp("cache", 6379)]),
            (
                "redis-sentinel://a,b:7/m",
                vec![tcp("a", 26379), tcp("b", 7)],
            ),
            ("zk://a,[::1]:7/locks", vec![tcp("a", 2181), tcp("::1", 7)]),
            ("mariadb://db/shop", vec![tcp("db", 3306)]),
            (
                "postgres://%2Frun%2Fpg:5433/shop",
                vec![Place::Socket("/run/pg/.s.PGSQL.5433".into())],
            ),
            (
                "mysql://%2Frun%2Fm.sock/shop",
                vec![Place::Socket("/run/m.sock".into())],
            ),
            (
                "redis+unix:///run/r.sock",
                vec![Place::Socket("/run/r.sock".into())],
            ),
            ("sqlite:locks.db", vec![]),
            ("sqlite://locks.db", vec![]),
            ("memory:", vec![]),
        ];
        for (url, expected) in table {
            assert_eq!(places(&LockUrl::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[cfg(feature = "zk")]
    #[test]
    fn a_session_lasts_as_long_as_its_url_says() {
        let usual = polylock::zk::ZooKeeperConfig::DEFAULT_SESSION_TIMEOUT;
        for (url, expected) in [
            ("zk://a/locks", usual),
            ("zk://a/locks?session-timeout=7s", Duration::from_secs(7)),
        ] {
            let url = LockUrl::parse(url).unwrap();
            assert_eq!(session_timeout(&url), expected, "{url}");
        }
    }
}
