//! Health checks of a cluster: what keeps it from granting locks, and what delays them.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType, StatusResponse};
use futures_util::future::join_all;
use polylock_core::{HealthCheck, HealthRule, Status};

use crate::error::Failure;
use crate::server_lease::ServerLease;
use crate::store::Store;

/// Checks the first server that answers, and warns of faults; with strict checks, refuses.
pub(crate) async fn check(store: &Store) -> Result<(), Failure> {
    let status =
        store.connection.retried(
            store.step(),
            |mut client| async move { client.status().await },
        );
    let facts = HealthFacts {
        servers: vec![Server::of(0, store, Ok(status.await?))],
        alarms: None,
        shortest_lease: None,
    };
    let checks = HealthRule::check_all(RULES, &facts);
    let outcome = HealthCheck::report(&checks, store.config.strict);
    outcome.map_err(Failure::Config)
}

/// Checks every server that the configuration names, for a report.
pub(crate) async fn check_health(store: &Store) -> Result<Vec<HealthCheck>, Failure> {
    // If none answers, that is an error and not a check.
    let answered =
        store.connection.retried(
            store.step(),
            |mut client| async move { client.status().await },
        );
    answered.await?;
    let servers = (0..store.connection.servers()).map(|at| async move {
        let status = store
            .connection
            .send_to(at, |mut client| async move { client.status().await });
        Server::of(at, store, status.await)
    });
    let alarms = store.connection.send(|mut client| async move {
        let alarms = client
            .alarm(AlarmAction::Get, AlarmType::None, None)
            .await?;
        Ok(alarms
            .alarms()
            .iter()
            .map(|member| member.alarm())
            .collect())
    });
    let lease = ServerLease::grant_shortest(&store.connection);
    let facts = HealthFacts {
        servers: join_all(servers).await,
        alarms: alarms.await.ok(),
        shortest_lease: lease.await.ok(),
    };
    let mut checks = HealthRule::check_all(RULES, &facts);
    if facts.alarms.is_none() {
        let summary = "etcd does not tell this user its alarms";
        checks.push(HealthCheck::not_checked(ALARMS, summary));
    }
    Ok(checks)
}

/// What is known of a cluster.
#[derive(Debug)]
struct HealthFacts {
    servers: Vec<Server>,
    /// `None` if they were not asked for.
    alarms: Option<Vec<AlarmType>>,
    shortest_lease: Option<Duration>,
}

/// One server.
#[derive(Debug)]
struct Server {
    name: String,
    /// Its version, or why it does not answer.
    version: Result<String, String>,
}

impl Server {
    fn of(at: usize, store: &Store, status: Result<StatusResponse, Failure>) -> Self {
        let host = store.config.hosts.get(at);
        Self {
            name: host.map_or_else(String::new, |(host, port)| format!("{host}:{port}")),
            version: match status {
                Ok(status) => Ok(status.version().to_owned()),
                Err(failure) => Err(failure.to_string()),
            },
        }
    }
}

impl HealthFacts {
    fn versions(&self) -> impl Iterator<Item = &str> {
        let versions = self
            .servers
            .iter()
            .filter_map(|server| server.version.as_ref().ok());
        versions.map(String::as_str)
    }

    fn silent(&self) -> Vec<String> {
        let silent = self.servers.iter().filter_map(|server| {
            let why = server.version.as_ref().err()?;
            Some(format!("{}: {why}", server.name))
        });
        silent.collect()
    }

    fn has(&self, alarm: AlarmType) -> bool {
        self.alarms
            .as_ref()
            .is_some_and(|alarms| alarms.contains(&alarm))
    }
}

const RULES: &[HealthRule<HealthFacts>] = &[
    HealthRule {
        id: "servers",
        rule: |facts| match &facts.silent()[..] {
            [] => Status::Ok.because(format!("{} of the servers answer", facts.servers.len())),
            silent => {
                Status::Warning.because(format!("servers do not answer: {}", silent.join("; ")))
            }
        },
        impact: "with a majority out of reach there are no locks",
        fix: "start the server, or correct its name in the URL",
    },
    HealthRule {
        id: VERSION,
        rule: |facts| {
            let versions: Vec<_> = facts.versions().collect();
            match versions.iter().find(|version| is_corrupting(version)) {
                Some(version) => Status::Warning.because(format!("etcd is {version}")),
                None => Status::Ok.because(format!("etcd is {}", versions.join(", "))),
            }
        },
        impact: "servers of this version can have different data after a crash, and so different holders",
        fix: "upgrade to 3.5.6 or later",
    },
    HealthRule {
        id: ALARMS,
        rule: |facts| match facts.has(AlarmType::Nospace) {
            true => {
                Status::Error.because("the alarm NOSPACE is on: the database has reached its quota")
            }
            false => None,
        },
        impact: "no lock is granted, and held ones are not released but expire",
        fix: "compact and defragment, or raise --quota-backend-bytes; then etcdctl alarm disarm",
    },
    HealthRule {
        id: ALARMS,
        rule: |facts| match facts.has(AlarmType::Corrupt) {
            true => Status::Error.because("the alarm CORRUPT is on: servers have different data"),
            false => None,
        },
        impact: "two servers can name different holders",
        fix: "replace the server that differs; see the documentation of etcd on data corruption",
    },
    HealthRule {
        id: ALARMS,
        rule: |facts| match facts.alarms.as_ref()?.is_empty() {
            true => Status::Ok.because("no alarm is on"),
            false => None,
        },
        impact: "",
        fix: "",
    },
    HealthRule {
        id: "lease",
        rule: |facts| match facts.shortest_lease? {
            shortest if shortest > SHORTEST_LEASE => {
                Status::Warning.because(format!("etcd grants no lease below {shortest:?}"))
            }
            _ => Status::Ok.because(format!("etcd grants leases of {SHORTEST_LEASE:?}")),
        },
        impact: "a lock with a shorter ttl stays taken for that long after its holder has died",
        fix: "lower --election-timeout, of which a lease is one and a half at least, or ask for a ttl that \
              is not shorter",
    },
];

const ALARMS: &str = "alarms";
const VERSION: &str = "version";

/// The shortest lease that is asked for.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_secs(2);

/// Whether servers of this version can have inconsistent data after a crash: 3.5.0 to 3.5.5.
fn is_corrupting(version: &str) -> bool {
    let patch = version
        .strip_prefix("3.5.")
        .and_then(|patch| patch.parse::<u32>().ok());
    patch.is_some_and(|patch| patch < 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_found_by_itself() {
        let facts = |version: &str| HealthFacts {
            servers: vec![Server {
                name: "a:1".to_owned(),
                version: Ok(version.to_owned()),
            }],
            alarms: Some(Vec::new()),
            shortest_lease: Some(SHORTEST_LEASE),
        };
        let good = || facts("3.4.23");
        let alarmed = |alarm| HealthFacts {
            alarms: Some(vec![alarm]),
            ..good()
        };
        let mut half = good();
        half.servers.push(Server {
            name: "b:1".to_owned(),
            version: Err("refused".to_owned()),
        });
        for (facts, expected) in [
            (good(), None),
            (facts("3.5.6"), None),
            (facts("3.6.1"), None),
            (half, Some(("servers", "b:1: refused"))),
            (facts("3.5.2"), Some(("version", "etcd is 3.5.2"))),
            (alarmed(AlarmType::Nospace), Some(("alarms", "quota"))),
            (alarmed(AlarmType::Corrupt), Some(("alarms", "CORRUPT"))),
            (
                HealthFacts {
                    shortest_lease: Some(Duration::from_secs(8)),
                    ..good()
                },
                Some(("lease", "below 8s")),
            ),
        ] {
            let found = HealthRule::check_all(RULES, &facts);
            assert_eq!(found.len(), 4, "{found:?}");
            let faults: Vec<_> = found.iter().filter(|check| check.is_fault()).collect();
            assert_eq!(faults.len(), usize::from(expected.is_some()), "{faults:?}");
            if let Some((id, says)) = expected {
                assert_eq!(faults[0].id, id);
                assert!(faults[0].to_string().contains(says), "{}", faults[0]);
            }
        }
    }
}
