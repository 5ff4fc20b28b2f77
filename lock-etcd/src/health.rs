//! Health checks of a cluster: what lets two clients hold a lock, and which servers are missing.

use std::collections::BTreeMap;

use etcd_client::ResponseHeader;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use polylock_core::engine::before;
use polylock_core::{HealthCheck, HealthRule, Status};
use tokio::time::Instant;

use crate::error::EtcdFailure;
use crate::store::EtcdStore;

/// Checks the servers once one of them answers, and warns of faults; with strict checks, fails.
pub(crate) async fn check(store: &EtcdStore) -> Result<(), EtcdFailure> {
    let checks = check_health(store).await?;
    let outcome = HealthCheck::report(&checks, store.config.strict);
    outcome.map_err(EtcdFailure::Config)
}

/// Checks every server that the configuration names, for a report. Alarms are not checked: they stop all writes, so
/// the first error reports them.
pub(crate) async fn check_health(store: &EtcdStore) -> Result<Vec<HealthCheck>, EtcdFailure> {
    let servers = servers(store).await?;
    Ok(HealthRule::check_all(RULES, &ClusterFacts { servers }))
}

/// The servers that the configuration names. If none answers, that is an error and not a check.
async fn servers(store: &EtcdStore) -> Result<Vec<ServerVersion>, EtcdFailure> {
    let connection = &store.connection;
    let until = Instant::now() + store.config.connect_timeout;
    first_answer(store, until).await?;
    // One that hangs must not use up the time of the other checks.
    let limit = until.saturating_duration_since(Instant::now()) / 2;
    let hosts = store.config.hosts.iter().enumerate();
    let servers = hosts.map(|(at, (host, port))| async move {
        let status = connection.send_to(at, |mut client| async move { client.status().await });
        let status = before(Instant::now() + limit, status).await;
        let status = status.unwrap_or(Err(EtcdFailure::Silent(limit)));
        let status = status.map_err(|failure| failure.to_string());
        let header = status.as_ref().ok().and_then(|(_, status)| status.header());
        ServerVersion {
            name: format!("{host}:{port}"),
            cluster: header.map(ResponseHeader::cluster_id),
            version: status.map(|(_, status)| status.version().to_owned()),
        }
    });
    Ok(join_all(servers).await)
}

/// Waits until a server answers. One that does not answer within its share of the time is left for the next one,
/// but its answer counts: it may only be slow.
async fn first_answer(store: &EtcdStore, until: Instant) -> Result<(), EtcdFailure> {
    let (config, connection) = (&store.config, &store.connection);
    let hosts = u32::try_from(config.hosts.len()).unwrap_or(u32::MAX);
    let share = config.connect_timeout / hosts.saturating_add(1);
    let mut requests = FuturesUnordered::new();
    loop {
        let at = connection.current();
        requests.push(connection.retried(until, |mut client| async move { client.status().await }));
        if let Some(Some(answered)) = before(Instant::now() + share, requests.next()).await {
            return answered.map(drop);
        }
        connection.leave(at, None);
    }
}

/// What is known of a cluster.
#[derive(Debug)]
struct ClusterFacts {
    servers: Vec<ServerVersion>,
}

/// One server.
#[derive(Debug)]
struct ServerVersion {
    name: String,
    /// The id of its cluster, if it is known.
    cluster: Option<u64>,
    /// Its version, or why it does not answer.
    version: Result<String, String>,
}

impl ClusterFacts {
    fn versions(&self) -> impl Iterator<Item = &str> {
        let versions = self
            .servers
            .iter()
            .filter_map(|server| server.version.as_ref().ok());
        versions.map(String::as_str)
    }

    /// The servers of each cluster, if there are several.
    fn clusters(&self) -> Option<Vec<String>> {
        let mut clusters = BTreeMap::<u64, Vec<&str>>::new();
        for server in &self.servers {
            if let Some(id) = server.cluster {
                clusters.entry(id).or_default().push(&server.name);
            }
        }
        let names = clusters.values().map(|names| names.join(", "));
        (clusters.len() > 1).then(|| names.collect())
    }

    fn silent(&self) -> Vec<String> {
        let silent = self.servers.iter().filter_map(|server| {
            let why = server.version.as_ref().err()?;
            Some(format!("{}: {why}", server.name))
        });
        silent.collect()
    }
}

const RULES: &[HealthRule<ClusterFacts>] = &[
    HealthRule {
        id: SERVERS,
        rule: |facts| match &facts.silent()[..] {
            _ if facts.clusters().is_some() => None,
            [] => match facts.servers.len() {
                1 => Status::Ok.because("the server answers"),
                count => Status::Ok.because(format!("all {count} servers answer")),
            },
            silent => {
                Status::Warning.because(format!("servers do not answer: {}", silent.join("; ")))
            }
        },
        impact: "with a majority out of reach there are no locks",
        fix: "start the server, or correct its name in the URL",
    },
    HealthRule {
        id: SERVERS,
        rule: |facts| {
            let clusters = facts.clusters()?.join("; ");
            Status::Error.because(format!("servers are of different clusters: {clusters}"))
        },
        impact: "a lock that is held in one cluster is granted in the other, so that two clients hold it",
        fix: "name the servers of one cluster in the URL",
    },
    HealthRule {
        id: "version",
        rule: |facts| {
            let versions: Vec<_> = facts.versions().collect();
            if versions.is_empty() {
                return None;
            }
            match versions.iter().find(|version| !is_safe(version)) {
                Some(version) => Status::Warning.because(format!("etcd is {version}")),
                None => Status::Ok.because(format!("etcd is {}", versions.join(", "))),
            }
        },
        impact: "a leader that hangs until others have replaced it, and then goes on, can revoke the leases of \
                 held locks, so that two clients hold one",
        fix: "upgrade to 3.4.31, 3.5.13 or later; until then let the resource check the fencing tokens",
    },
];

const SERVERS: &str = "servers";

/// Whether a leader of this version revokes no leases after others have replaced it (etcd #15247), which is so
/// from 3.4.31 and 3.5.13 on; 3.5.0 to 3.5.5 can lose data in a crash as well.
fn is_safe(version: &str) -> bool {
    // The patch may have a suffix, such as that of a release candidate.
    let numbers = version.split(['.', '-', '+']).map(str::parse);
    let numbers: Vec<u32> = numbers.map_while(Result::ok).collect();
    match numbers[..] {
        [3, 4, patch, ..] => patch >= 31,
        [3, 5, patch, ..] => patch >= 13,
        [major, minor, ..] => (major, minor) > (3, 5),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_all_answer_are_counted() {
        let says = |count: usize| {
            let server = |n: usize| ServerVersion {
                name: format!("{n}:1"),
                cluster: Some(1),
                version: Ok("3.5.13".to_owned()),
            };
            let servers = (0..count).map(server).collect();
            let facts = ClusterFacts { servers };
            let found = HealthRule::check_all(RULES, &facts);
            let servers = found.into_iter().find(|check| check.id == SERVERS);
            servers.expect("it is checked").summary
        };
        assert_eq!(says(1), "the server answers");
        assert_eq!(says(3), "all 3 servers answer");
    }

    #[test]
    fn each_fault_is_found_by_itself() {
        let facts = |version: &str| ClusterFacts {
            servers: vec![ServerVersion {
                name: "a:1".to_owned(),
                cluster: Some(1),
                version: Ok(version.to_owned()),
            }],
        };
        let mut half = facts("3.4.31");
        half.servers.push(ServerVersion {
            name: "b:1".to_owned(),
            cluster: None,
            version: Err("refused".to_owned()),
        });
        let mut mixed = facts("3.5.13");
        mixed.servers.push(ServerVersion {
            name: "b:1".to_owned(),
            cluster: Some(2),
            version: Ok("3.5.13".to_owned()),
        });
        for (facts, expected) in [
            (facts("3.4.31"), None),
            (facts("3.5.13"), None),
            (facts("3.6.0-rc.1"), None),
            (facts("3.10.0"), None),
            (half, Some(("servers", "b:1: refused"))),
            (mixed, Some(("servers", "clusters: a:1; b:1"))),
            (facts("3.4.23"), Some(("version", "etcd is 3.4.23"))),
            (facts("3.4.30+git"), Some(("version", "etcd is 3.4.30+git"))),
            (facts("3.5.12"), Some(("version", "etcd is 3.5.12"))),
            (facts("3.3.27"), Some(("version", "etcd is 3.3.27"))),
        ] {
            let found = HealthRule::check_all(RULES, &facts);
            assert_eq!(found.len(), 2, "{found:?}");
            let faults: Vec<_> = found.iter().filter(|check| check.is_fault()).collect();
            assert_eq!(faults.len(), usize::from(expected.is_some()), "{faults:?}");
            if let Some((id, says)) = expected {
                assert_eq!(faults[0].id, id);
                if id == "version" {
                    // Locks work there, and with one server there is no other leader.
                    assert_eq!(faults[0].status, Status::Warning);
                }
                assert!(faults[0].to_string().contains(says), "{}", faults[0]);
            }
        }
    }
}
