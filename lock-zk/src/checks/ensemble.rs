//! What an ensemble is like: the checks of every start.

use std::time::Duration;

use lock_core::{HealthCheck, HealthRule, Status};
use zookeeper_client::{Client, Error as ClientError};

use crate::config::{Access, ZooKeeperConfig};
use crate::error::Failure;

/// What an ensemble says of itself, and what was asked of it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    asked: Duration,
    pub(super) granted: Duration,
    access: Access,
    /// Whether everybody may touch the nodes, and nobody has said so.
    is_open: bool,
    members: Option<Members>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Members {
    /// The server has no list, which came with 3.5.0.
    Unlisted,
    Voters(usize),
}

/// Asks for it; what the ensemble does not tell this client is left out.
pub(super) async fn ask(client: &Client, config: &ZooKeeperConfig) -> Result<Facts, Failure> {
    let members = match client.get_config().await {
        Ok((text, _)) => Some(voters(&String::from_utf8_lossy(&text))),
        Err(ClientError::NoNode) => Some(Members::Unlisted),
        Err(ClientError::NoAuth) => {
            tracing::debug!("a check of the ensemble is left out, its list is private");
            None
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Facts {
        asked: config.session_timeout,
        granted: client.session_timeout(),
        access: config.access(),
        is_open: config.is_open_by_default(),
        members,
    })
}

/// Reads the list of servers: those that stand alone have an empty one, observers do not vote.
fn voters(text: &str) -> Members {
    let servers = text.lines().filter(|line| line.starts_with("server."));
    let voters = servers.filter(|line| !line.contains(":observer"));
    Members::Voters(voters.count().max(1))
}

/// The checks of every start.
pub(super) fn health_checks(facts: &Facts) -> Vec<HealthCheck> {
    HealthRule::check_all(STARTUP, facts)
}

const STARTUP: &[HealthRule<Facts>] = &[
    HealthRule {
        id: "version",
        rule: |facts| match facts.members {
            Some(Members::Unlisted) => {
                Status::Warning.because("the server is older than ZooKeeper 3.5")
            }
            Some(Members::Voters(_)) => Status::Ok.because("the server is ZooKeeper 3.5 or later"),
            None => Status::NotChecked.because(PRIVATE),
        },
        impact: "it has no container nodes, and the directories of locks stay forever",
        fix: "use ZooKeeper 3.6 or later",
    },
    HealthRule {
        id: "ensemble",
        rule: |facts| match facts.members {
            Some(Members::Voters(1)) => Status::Warning.because("the ensemble is one server"),
            _ => None,
        },
        impact: "nothing can be acquired, and holders lose their locks, while it is down",
        fix: "use three servers, or five",
    },
    HealthRule {
        id: "ensemble",
        rule: |facts| match facts.members {
            Some(Members::Voters(1)) => None,
            Some(Members::Voters(voters)) => {
                let summary = format!("the ensemble has {voters} servers that vote");
                match voters % 2 {
                    0 => Status::Warning.because(summary),
                    _ => Status::Ok.because(summary),
                }
            }
            Some(Members::Unlisted) => {
                Status::NotChecked.because("a server before 3.5 does not tell its members")
            }
            None => Status::NotChecked.because(PRIVATE),
        },
        impact: "an even number survives the loss of no more servers than the odd one below it",
        fix: "add a server, or make one an observer",
    },
    HealthRule {
        id: "session-timeout",
        rule: |Facts { granted, asked, .. }| match granted == asked {
            true => Status::Ok.because(format!("the session timeout is {granted:?}, as requested")),
            false => Status::Warning.because(format!(
                "the session timeout is {granted:?}, not the requested {asked:?}"
            )),
        },
        impact: "the locks of a client that dies are free after that time",
        fix: "set session-timeout between minSessionTimeout and maxSessionTimeout of the servers, or \
              change these",
    },
    HealthRule {
        id: "access",
        rule: |facts| match facts.access {
            _ if facts.is_open => {
                Status::Warning.because("everyone may change and delete the nodes of locks")
            }
            Access::Creator => {
                Status::Ok.because("only this user may read or change the nodes of its locks")
            }
            Access::CreatorAndReaders => {
                Status::Ok.because("only this user may change the nodes of its locks")
            }
            Access::Everybody => {
                Status::Ok.because("everyone may change the nodes of locks, as requested")
            }
        },
        impact: "any client that reaches the server can end a lock while it is held",
        fix: "give the URL a user and a password, or keep the network closed and set \
              access=everybody",
    },
];

const PRIVATE: &str = "the list of servers, /zookeeper/config, is closed to this user";

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            asked: Duration::from_secs(20),
            granted: Duration::from_secs(20),
            access: Access::Creator,
            is_open: false,
            members: Some(Members::Voters(3)),
        }
    }

    fn faults(facts: &Facts) -> Vec<HealthCheck> {
        let mut found = health_checks(facts);
        found.retain(HealthCheck::is_fault);
        found
    }

    type Change = fn(&mut Facts);

    #[test]
    fn each_fault_is_found_by_itself() {
        assert_eq!(faults(&good()), []);
        let cases: [(Change, &str, &str); 5] = [
            (
                |f| f.members = Some(Members::Unlisted),
                "version",
                "older than ZooKeeper 3.5",
            ),
            (
                |f| f.members = Some(Members::Voters(1)),
                "ensemble",
                "three servers",
            ),
            (
                |f| f.members = Some(Members::Voters(4)),
                "ensemble",
                "4 servers that vote",
            ),
            (
                |f| f.granted = Duration::from_secs(40),
                "session-timeout",
                "is 40s, not the requested 20s",
            ),
            (|f| f.is_open = true, "access", "a user and a password"),
        ];
        for (change, check, says) in cases {
            let mut facts = good();
            change(&mut facts);
            let found = faults(&facts);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].id, check);
            assert!(found[0].to_string().contains(says), "{}", found[0]);
        }
    }

    #[test]
    fn what_is_not_told_is_unknown() {
        let five = Facts {
            members: Some(Members::Voters(5)),
            ..good()
        };
        assert_eq!(faults(&five), []);
        let untold = Facts {
            members: None,
            ..good()
        };
        let found = health_checks(&untold);
        let unknown = found.iter().filter(|f| f.status == Status::NotChecked);
        let unknown: Vec<_> = unknown.map(|health| health.id).collect();
        assert_eq!(unknown, ["version", "ensemble"]);
        assert_eq!(faults(&untold), []);
    }

    #[test]
    fn observers_do_not_vote() {
        let text = "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
                    server.2=b:2888:3888:participant;0.0.0.0:2181\n\
                    server.3=c:2888:3888;0.0.0.0:2181\n\
                    server.4=d:2888:3888:observer;0.0.0.0:2181\nversion=100000000";
        assert_eq!(voters(text), Members::Voters(3));
        assert_eq!(voters(""), Members::Voters(1));
    }
}
