//! What is looked at before an ensemble gets locks to keep.

use std::time::Duration;

use zookeeper_client::{Client, Error as ClientError};

use crate::config::ZooKeeperConfig;
use crate::error::{Cause, Failure};

/// Looks at an ensemble, and warns of what it finds; with strict checks, refuses.
///
/// What the ensemble does not tell this client is left out.
pub(crate) async fn check(client: &Client, config: &ZooKeeperConfig) -> Result<(), Failure> {
    let facts = ask(client, config).await?;
    let found = findings(&facts);
    if config.strict && !found.is_empty() {
        let found: Vec<_> = found.iter().map(Finding::to_string).collect();
        let message = format!("strict=on refuses this ensemble: {}", found.join(". "));
        return Err(Cause::Config(message).into());
    }
    for Finding { what, why, way_out } in found {
        tracing::warn!(%what, why, way_out, "an ensemble is not fit for locks");
    }
    Ok(())
}

/// What an ensemble says of itself, and what was asked of it.
#[derive(Clone, Debug)]
struct Facts {
    asked: Duration,
    granted: Duration,
    is_open: bool,
    members: Option<Members>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Members {
    /// The server has no list, which came with 3.5.0.
    Unlisted,
    Voters(usize),
}

/// What is wrong with an ensemble, or with how it is used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}: {why}; {way_out}")]
struct Finding {
    what: String,
    why: &'static str,
    way_out: &'static str,
}

fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |what: String, why, way_out| found.push(Finding { what, why, way_out });
    match facts.members {
        Some(Members::Unlisted) => find(
            "the server is older than ZooKeeper 3.5".to_owned(),
            "it has no container nodes, and the directories of locks stay for ever",
            "use ZooKeeper 3.6 or later",
        ),
        Some(Members::Voters(1)) => find(
            "the ensemble is one server".to_owned(),
            "nobody gets a lock, and holders lose theirs, while it is down",
            "use three servers, or five",
        ),
        Some(Members::Voters(voters)) if voters % 2 == 0 => find(
            format!("the ensemble has {voters} servers that vote"),
            "an even number survives the loss of no more servers than the odd one below it",
            "add a server, or make one an observer",
        ),
        Some(Members::Voters(_)) | None => {}
    }
    if facts.granted != facts.asked {
        find(
            format!(
                "the session time-out is {:?}, not the {:?} that were asked for",
                facts.granted, facts.asked
            ),
            "the locks of a client that dies are free after that time",
            "ask for a session-timeout between the minSessionTimeout and the maxSessionTimeout of \
             the servers, or change these",
        );
    }
    if facts.is_open {
        find(
            "everybody may change and delete the nodes of locks".to_owned(),
            "whoever reaches the server can end a lock while it is held",
            "give the URL a user and a password, or keep the network closed and say so with \
             access=everybody",
        );
    }
    found
}

async fn ask(client: &Client, config: &ZooKeeperConfig) -> Result<Facts, Failure> {
    let members = match client.get_config().await {
        Ok((text, _)) => Some(voters(&String::from_utf8_lossy(&text))),
        Err(ClientError::NoNode) => Some(Members::Unlisted),
        Err(ClientError::NoAuth) => {
            tracing::debug!("the start-up check of the ensemble is left out, its list is private");
            None
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Facts {
        asked: config.session_timeout,
        granted: client.session_timeout(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            asked: Duration::from_secs(20),
            granted: Duration::from_secs(20),
            is_open: false,
            members: Some(Members::Voters(3)),
        }
    }

    type Change = fn(&mut Facts);

    #[test]
    fn each_fault_is_found_by_itself() {
        assert_eq!(findings(&good()), []);
        let cases: [(Change, &str); 5] = [
            (
                |f| f.members = Some(Members::Unlisted),
                "older than ZooKeeper 3.5",
            ),
            (|f| f.members = Some(Members::Voters(1)), "three servers"),
            (
                |f| f.members = Some(Members::Voters(4)),
                "4 servers that vote",
            ),
            (
                |f| f.granted = Duration::from_secs(40),
                "is 40s, not the 20s",
            ),
            (|f| f.is_open = true, "a user and a password"),
        ];
        for (change, says) in cases {
            let mut facts = good();
            change(&mut facts);
            let found = findings(&facts);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].to_string().contains(says), "{}", found[0]);
        }
    }

    #[test]
    fn what_is_not_told_is_no_fault() {
        for members in [None, Some(Members::Voters(5))] {
            let facts = Facts { members, ..good() };
            assert_eq!(findings(&facts), []);
        }
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
