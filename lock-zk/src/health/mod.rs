//! Health checks of an ensemble.
//!
//! `version`, `ensemble`, `session-timeout` and `access` are checked at every start; `quorum`,
//! `root`, `rights` and `clock` by a visit of the doctor alone.

mod permission_probe;
#[cfg(test)]
mod tests;

use std::time::Duration;

use lock_core::engine::{Engine, before};
use lock_core::{HealthCheck, HealthRule, RuleOutcome, Status};
use tokio::time::Instant;
use zookeeper_client::{Client, Error as ClientError};

use self::permission_probe::{PermissionProbe, ProbeStep, RootState};
use crate::config::{Access, ZooKeeperConfig};
use crate::diagnose_connect::{Answer, Answers};
use crate::error::{Cause, Failure};
use crate::session::connect::visit;

/// What an ensemble says of itself, and what was asked of it.
#[derive(Debug)]
struct HealthFacts {
    asked: Duration,
    granted: Duration,
    access: Access,
    /// Whether everyone may touch the nodes, and the configuration does not say so.
    is_open: bool,
    members: Option<Members>,
    visit: Option<Visit>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Members {
    /// The server has no list, which came with 3.5.0.
    Unlisted,
    Voters(usize),
}

/// What was seen of each server that the URL names, and what this user may do.
#[derive(Debug)]
struct Visit {
    answers: Answers,
    root: String,
    probe: PermissionProbe,
}

/// Checks an ensemble at a start, and warns of what is wrong; with strict checks, refuses.
///
/// What the ensemble does not tell this client is left out.
pub(crate) async fn check(client: &Client, config: &ZooKeeperConfig) -> Result<(), Failure> {
    let mut checks = HealthRule::check_all(RULES, &ask(client, config).await?);
    checks.retain(HealthCheck::is_fault);
    if config.strict && !checks.is_empty() {
        let checks: Vec<_> = checks.iter().map(HealthCheck::to_string).collect();
        let message = format!("strict=on refuses this ensemble: {}", checks.join(". "));
        return Err(Cause::Config(message).into());
    }
    for check in checks {
        tracing::warn!(
            summary = %check.summary,
            impact = %check.impact,
            fix = %check.fix,
            "an ensemble may lose locks"
        );
    }
    Ok(())
}

/// Checks an ensemble in a session of its own, and tries out what locks need.
pub(crate) async fn check_all(
    config: &ZooKeeperConfig,
    engine: &Engine,
) -> Result<Vec<HealthCheck>, Failure> {
    let (client, answers) = visit(config, engine).await?;
    let visiting = async {
        let mut facts = ask(&client, config).await?;
        facts.visit = Some(Visit {
            answers,
            root: config.root.clone(),
            probe: PermissionProbe::run(&client, config, engine).await?,
        });
        Ok(HealthRule::check_all(RULES, &facts))
    };
    let within = config.timeout.max(MIN_VISIT);
    let visited = before(Instant::now() + within, visiting).await;
    visited.unwrap_or_else(|| Err(Failure::silent(within)))
}

/// For a dozen requests.
const MIN_VISIT: Duration = Duration::from_secs(5);

/// Asks for it; what the ensemble does not tell this client is left out.
async fn ask(client: &Client, config: &ZooKeeperConfig) -> Result<HealthFacts, Failure> {
    let members = match client.get_config().await {
        Ok((text, _)) => Some(voters(&String::from_utf8_lossy(&text))),
        Err(ClientError::NoNode) => Some(Members::Unlisted),
        Err(ClientError::NoAuth) => {
            tracing::debug!("a check of the ensemble is left out, its list is private");
            None
        }
        Err(error) => return Err(error.into()),
    };
    Ok(HealthFacts {
        asked: config.session_timeout,
        granted: client.session_timeout(),
        access: config.access(),
        is_open: config.is_open_by_default(),
        members,
        visit: None,
    })
}

/// Reads the list of servers: those that stand alone have an empty one, observers do not vote.
fn voters(text: &str) -> Members {
    let servers = text.lines().filter(|line| line.starts_with("server."));
    let voters = servers.filter(|line| !line.contains(":observer"));
    Members::Voters(voters.count().max(1))
}

const RULES: &[HealthRule<HealthFacts>] = &[
    HealthRule {
        id: "version",
        rule: |facts| match (facts.members, versions(facts)) {
            (Some(Members::Unlisted), _) => {
                Status::Warning.because("the server is older than ZooKeeper 3.5")
            }
            (_, Some(versions)) => {
                Status::Ok.because(format!("the servers are ZooKeeper {versions}"))
            }
            (Some(_), None) => Status::Ok.because("the server is ZooKeeper 3.5 or later"),
            (None, None) => Status::NotChecked.because(PRIVATE),
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
        rule: |facts| match facts {
            HealthFacts { granted, asked, .. } if granted != asked => Status::Warning.because(
                format!("the session timeout is {granted:?}, not the requested {asked:?}"),
            ),
            _ if is_short(facts) => None,
            HealthFacts { granted, .. } => {
                Status::Ok.because(format!("the session timeout is {granted:?}, as requested"))
            }
        },
        impact: "the locks of a client that dies are free after that time",
        fix: "set session-timeout between minSessionTimeout and maxSessionTimeout of the servers, or \
              change these",
    },
    HealthRule {
        id: "session-timeout",
        rule: |facts| match is_short(facts) {
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
    HealthRule {
        id: "quorum",
        rule: |facts| quorum(&facts.visit.as_ref()?.answers),
        impact: "the ensemble survives the loss of so many fewer",
        fix: "bring them back, or name those that there are",
    },
    HealthRule {
        id: "root",
        rule: |facts| {
            let Visit { root, probe, .. } = facts.visit.as_ref()?;
            match probe.root {
                RootState::Exists => Status::Ok.because(format!("the root {root} is there")),
                RootState::Created => {
                    Status::Ok.because(format!("the root {root} was missing, and is made"))
                }
                RootState::Denied => Status::Error.because(format!(
                    "the root {root} is missing, and this user may not make it"
                )),
            }
        },
        impact: "nothing can be acquired",
        fix: "make it with an access control list that lets this user create, read and delete, or \
              name another path",
    },
    HealthRule {
        id: "rights",
        rule: |facts| match denied(facts)? {
            (_, None) => Status::Ok.because("this user may do all that locks need"),
            (root, Some(ProbeStep::Create)) => {
                Status::Error.because(format!("this user may not create nodes in {root}"))
            }
            (_, Some(ProbeStep::Contend)) => {
                Status::Error.because("this user may not use the nodes that it has made")
            }
            _ => None,
        },
        impact: "locks are refused; a wrong password of auth=digest shows like this as well",
        fix: "let this user create, read and delete in the root, see getAcl of zkCli.sh",
    },
    HealthRule {
        id: "rights",
        rule: |facts| match denied(facts)? {
            (root, Some(ProbeStep::List)) => {
                Status::Warning.because(format!("this user may not read {root}"))
            }
            _ => None,
        },
        impact: "locks work, and cannot be listed",
        fix: "let this user read the root",
    },
    HealthRule {
        id: "rights",
        rule: |facts| match denied(facts)? {
            (root, Some(ProbeStep::Delete)) => {
                Status::Warning.because(format!("this user may not delete nodes in {root}"))
            }
            _ => None,
        },
        impact: "a directory whose sequence numbers are used up cannot begin again",
        fix: "let this user delete in the root",
    },
    HealthRule {
        id: "clock",
        rule: |facts| {
            let offset = facts.visit.as_ref()?.probe.clock?;
            let (min, max) = (offset.min.as_secs(), offset.max.as_millis() + 1);
            Status::Ok.because(match offset.min > MAX_OFFSET {
                true => format!(
                    "the clock of the leader differs by {min} s, which changes nothing for locks"
                ),
                false => {
                    format!("the clock of the leader agrees with this one to within {max} ms")
                }
            })
        },
        // Sessions end by a clock that cannot be set, and tokens count transactions.
        impact: "",
        fix: "",
    },
];

const PRIVATE: &str = "the list of servers, /zookeeper/config, is closed to this user";

/// The shortest that servers grant unless configured.
const SHORT_SESSION: Duration = Duration::from_secs(4);

const MAX_OFFSET: Duration = Duration::from_secs(1);

/// The versions that the servers tell themselves, where their list has only the minimum.
fn versions(facts: &HealthFacts) -> Option<String> {
    let answers = facts.visit.as_ref()?.answers.0.iter();
    let version = |(_, answer): &'_ (String, Answer)| match answer {
        Answer::Serving(version) => version.clone(),
        _ => None,
    };
    let mut versions: Vec<_> = answers.filter_map(version).collect();
    versions.sort_unstable();
    versions.dedup();
    (!versions.is_empty()).then(|| versions.join(" and "))
}

/// Whether the timeout is as requested, and shorter than servers grant unless configured.
fn is_short(facts: &HealthFacts) -> bool {
    facts.visit.is_some() && facts.granted == facts.asked && facts.granted < SHORT_SESSION
}

fn quorum(Answers(named): &Answers) -> RuleOutcome {
    let others = named
        .iter()
        .filter(|(_, answer)| !matches!(answer, Answer::Serving(_)));
    let others: Vec<_> = others
        .map(|(address, answer)| format!("{address} {answer}"))
        .collect();
    if others.is_empty() {
        return Status::Ok.because("every server that the URL names serves");
    }
    Status::Warning.because(format!(
        "{} of {} servers that the URL names do not serve: {}",
        others.len(),
        named.len(),
        others.join("; ")
    ))
}

/// The root, and what was denied there, unless the root is missing.
fn denied(facts: &HealthFacts) -> Option<(&str, Option<ProbeStep>)> {
    let Visit { root, probe, .. } = facts.visit.as_ref()?;
    (probe.root != RootState::Denied).then_some((root, probe.denied))
}
