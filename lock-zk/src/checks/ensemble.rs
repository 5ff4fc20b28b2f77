//! What an ensemble is like: the checks of every start.

use std::time::Duration;

use lock_core::HealthCheck;
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

/// What each check shows.
pub(super) fn health_checks(facts: &Facts) -> Vec<HealthCheck> {
    vec![
        version(facts),
        ensemble(facts),
        session_timeout(facts),
        access(facts),
    ]
}

fn version(facts: &Facts) -> HealthCheck {
    match facts.members {
        Some(Members::Unlisted) => HealthCheck::warning(
            "version",
            "the server is older than ZooKeeper 3.5",
            "it has no container nodes, and the directories of locks stay for ever",
            "use ZooKeeper 3.6 or later",
        ),
        Some(Members::Voters(_)) => {
            HealthCheck::ok("version", "the server is ZooKeeper 3.5 or later")
        }
        None => HealthCheck::not_checked("version", PRIVATE),
    }
}

fn ensemble(facts: &Facts) -> HealthCheck {
    match facts.members {
        Some(Members::Voters(1)) => HealthCheck::warning(
            "ensemble",
            "the ensemble is one server",
            "nobody gets a lock, and holders lose theirs, while it is down",
            "use three servers, or five",
        ),
        Some(Members::Voters(voters)) if voters % 2 == 0 => HealthCheck::warning(
            "ensemble",
            format!("the ensemble has {voters} servers that vote"),
            "an even number survives the loss of no more servers than the odd one below it",
            "add a server, or make one an observer",
        ),
        Some(Members::Voters(voters)) => HealthCheck::ok(
            "ensemble",
            format!("the ensemble has {voters} servers that vote"),
        ),
        Some(Members::Unlisted) => {
            HealthCheck::not_checked("ensemble", "a server before 3.5 does not tell its members")
        }
        None => HealthCheck::not_checked("ensemble", PRIVATE),
    }
}

const PRIVATE: &str = "the list of servers, /zookeeper/config, is closed to this user";

fn session_timeout(facts: &Facts) -> HealthCheck {
    if facts.granted != facts.asked {
        return HealthCheck::warning(
            "session-timeout",
            format!(
                "the session time-out is {:?}, not the {:?} that were asked for",
                facts.granted, facts.asked
            ),
            "the locks of a client that dies are free after that time",
            "ask for a session-timeout between the minSessionTimeout and the maxSessionTimeout of \
             the servers, or change these",
        );
    }
    let what = format!("the session time-out is {:?}, as asked for", facts.granted);
    HealthCheck::ok("session-timeout", what)
}

fn access(facts: &Facts) -> HealthCheck {
    if facts.is_open {
        return HealthCheck::warning(
            "access",
            "everybody may change and delete the nodes of locks",
            "whoever reaches the server can end a lock while it is held",
            "give the URL a user and a password, or keep the network closed and say so with \
             access=everybody",
        );
    }
    HealthCheck::ok(
        "access",
        match facts.access {
            Access::Creator => "only this user may touch the nodes of its locks",
            Access::CreatorAndReaders => "only this user may change the nodes of its locks",
            Access::Everybody => "everybody may touch the nodes of locks, as asked for",
        },
    )
}

#[cfg(test)]
mod tests {
    use lock_core::Status;

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
                "is 40s, not the 20s",
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
