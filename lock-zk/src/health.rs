//! Health checks of a session with an ensemble: what can end locks while they are held.

use std::time::Duration;

use polylock_core::{HealthCheck, HealthRule, Status};
use zookeeper_client::Client;

use crate::config::{NodeAccess, ZooKeeperConfig};
use crate::error::ZkFailure;

/// Checks the first session and warns of faults; with strict checks, fails.
pub(crate) fn check(client: &Client, config: &ZooKeeperConfig) -> Result<(), ZkFailure> {
    // A start does not know how long an election takes, and is not warned of short sessions.
    let checks = HealthRule::check_all(RULES, &EnsembleFacts::of(client, config, Duration::ZERO));
    HealthCheck::report(&checks, config.strict).map_err(ZkFailure::Config)
}

/// Checks the session of a client for a report.
pub(crate) fn check_health(client: &Client, config: &ZooKeeperConfig) -> Vec<HealthCheck> {
    HealthRule::check_all(RULES, &EnsembleFacts::of(client, config, SHORT_SESSION))
}

/// What an ensemble grants, and what was requested of it.
#[derive(Debug)]
struct EnsembleFacts {
    requested: Duration,
    granted: Duration,
    /// Sessions below are too short.
    min: Duration,
    access: NodeAccess,
    /// Whether everyone may touch the nodes, and the configuration does not say so.
    is_open: bool,
}

impl EnsembleFacts {
    fn of(client: &Client, config: &ZooKeeperConfig, min: Duration) -> Self {
        Self {
            requested: config.session_timeout,
            granted: client.session_timeout(),
            min,
            access: config.access(),
            is_open: config.is_open_by_default(),
        }
    }
}

const RULES: &[HealthRule<EnsembleFacts>] = &[
    HealthRule {
        id: SESSION_TIMEOUT,
        rule: |facts| match (facts.granted, facts.requested) {
            (granted, requested) if granted != requested => Status::Warning.because(format!(
                "the session timeout is {granted:?}, not the requested {requested:?}"
            )),
            (granted, _) if granted < facts.min => None,
            (granted, _) => {
                Status::Ok.because(format!("the session timeout is {granted:?}, as requested"))
            }
        },
        impact: "the locks of a client that dies are free after that time",
        fix: "set session-timeout between minSessionTimeout and maxSessionTimeout of the servers, or \
              change these",
    },
    HealthRule {
        id: SESSION_TIMEOUT,
        rule: |facts| match facts.granted == facts.requested && facts.granted < facts.min {
            true => Status::Warning.because(format!("the session timeout is {:?}", facts.granted)),
            false => None,
        },
        impact: "a pause of the process or of a server, such as for garbage collection, and the \
                 election of a leader cost all locks",
        fix: "ask for a session-timeout of 10s or more, 4s at least",
    },
    HealthRule {
        id: "access",
        rule: |facts| match facts.access {
            _ if facts.is_open => {
                Status::Warning.because("everyone may change and delete the nodes of locks")
            }
            NodeAccess::Creator => {
                Status::Ok.because("only this user may read or change the nodes of its locks")
            }
            NodeAccess::CreatorAndReaders => {
                Status::Ok.because("only this user may change the nodes of its locks")
            }
            NodeAccess::Everybody => {
                Status::Ok.because("everyone may change the nodes of locks, as requested")
            }
        },
        impact: "any client that reaches the server can end a lock while it is held",
        fix: "give the URL a user and a password, or keep the network closed and set \
              access=everybody",
    },
];

const SESSION_TIMEOUT: &str = "session-timeout";

/// Two ticks of 2 s, the shortest that servers grant unless configured.
const SHORT_SESSION: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_found_by_itself() {
        let facts = |requested: u64, granted: u64| EnsembleFacts {
            requested: Duration::from_millis(requested),
            granted: Duration::from_millis(granted),
            min: SHORT_SESSION,
            access: NodeAccess::Creator,
            is_open: false,
        };
        let everybody = |is_open| EnsembleFacts {
            access: NodeAccess::Everybody,
            is_open,
            ..facts(20_000, 20_000)
        };
        let at_start = EnsembleFacts {
            min: Duration::ZERO,
            ..facts(1_000, 1_000)
        };
        for (facts, expected) in [
            (facts(20_000, 20_000), None),
            (everybody(false), None),
            (at_start, None),
            (everybody(true), Some(("access", "a user and a password"))),
            (
                facts(20_000, 3_999),
                Some(("session-timeout", "is 3.999s, not the requested 20s")),
            ),
            (
                facts(3_999, 3_999),
                Some(("session-timeout", "garbage collection")),
            ),
        ] {
            let found = HealthRule::check_all(RULES, &facts);
            assert_eq!(found.len(), 2, "{found:?}");
            let faults: Vec<_> = found.iter().filter(|check| check.is_fault()).collect();
            assert_eq!(faults.len(), usize::from(expected.is_some()), "{faults:?}");
            if let Some((id, says)) = expected {
                assert_eq!(faults[0].id, id);
                assert!(faults[0].to_string().contains(says), "{}", faults[0]);
            }
        }
    }
}
