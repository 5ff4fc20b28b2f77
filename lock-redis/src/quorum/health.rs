//! The health checks of a quorum: those of each master, and those of the masters together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use polylock_core::{Error, HealthCheck, HealthRule, Result, Status};

use super::node::QuorumNode;
use super::{NAME, let_in, misconfigured, open};
use crate::checks::{ServerFacts, look, merged};
use crate::config::RedisConfig;
use crate::error::RedisFailure;

/// Checks the masters of a quorum, and closes the connections to them.
pub(crate) async fn check_health(mut config: RedisConfig) -> Result<Vec<HealthCheck>> {
    let named = |error: Error| error.with_backend(NAME);
    let quorum = open(&config).await.map_err(named)?;
    // As in the configuration of quorum nodes.
    config.push = false;
    let config = &config;
    let answers = quorum.ask(|node| async move { check_node(&node, config).await });
    let mut answers: Vec<_> = answers.collect().await;
    answers.sort_by_key(|(number, _)| *number);
    let (mut masters, mut checks, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for (number, answer) in answers {
        let name: Arc<str> = quorum.nodes[number].name.as_str().into();
        let facts = match answer {
            Ok((facts, of_master)) => {
                checks.push((Arc::clone(&name), of_master));
                Ok(facts)
            }
            Err(failure) => {
                if let Some(error) = misconfigured(&quorum.nodes[number], &failure) {
                    return Err(named(error));
                }
                let cause = failure.cause.to_string();
                failures.push(failure);
                Err(cause)
            }
        };
        masters.push((name, facts));
    }
    if quorum.is_too_few(failures.len()) {
        return Err(named(quorum.unavailable(&failures, &[])));
    }
    let mut found = merged(checks);
    let all = Masters {
        masters,
        rejoin_delay: config.rejoin_delay,
    };
    found.extend(HealthRule::check_all(RULES, &all));
    Ok(found)
}

async fn check_node(
    node: &QuorumNode,
    config: &RedisConfig,
) -> Result<(ServerFacts, Vec<HealthCheck>), RedisFailure> {
    let topology = &*node.server.topology;
    let_in(topology, config).await?;
    let (mut facts, checks) = look(topology, config).await?;
    Ok((facts.swap_remove(0), checks))
}

#[derive(Clone, Debug)]
struct Masters {
    /// The name of each, with what it reports, or why it does not reply.
    masters: Vec<(Arc<str>, Result<ServerFacts, String>)>,
    rejoin_delay: Duration,
}

impl Masters {
    fn answering(&self) -> impl Iterator<Item = (&Arc<str>, &ServerFacts)> {
        let masters = self.masters.iter();
        masters.filter_map(|(name, facts)| Some((name, facts.as_ref().ok()?)))
    }

    /// Two names of the same server.
    fn twins(&self) -> Option<(&str, &str)> {
        let mut names = HashMap::<&str, &str>::new();
        self.answering().find_map(|(name, facts)| {
            let twin = names.insert(facts.run_id.as_deref()?, name)?;
            Some((twin, &**name))
        })
    }
}

const RULES: &[HealthRule<Masters>] = &[
    HealthRule {
        id: "nodes",
        rule: |Masters { masters, .. }| {
            let causes = masters.iter().filter_map(|(_, facts)| facts.as_ref().err());
            let causes: Vec<_> = causes.map(String::as_str).collect();
            if causes.is_empty() {
                return Status::Ok.because("all masters answer");
            }
            let (count, all, causes) = (causes.len(), masters.len(), causes.join("; "));
            Status::Warning.because(format!("{count} of {all} masters do not answer: {causes}"))
        },
        impact: "the quorum carries the loss of so many fewer",
        fix: "bring them back, or have all clients name others",
    },
    HealthRule {
        id: "same-server",
        rule: |all| match all.twins() {
            Some((one, other)) => {
                Status::Error.because(format!("{one} and {other} are the same server"))
            }
            None if all.answering().any(|(_, facts)| facts.run_id.is_none()) => {
                Status::NotChecked.because("INFO of a master has no run_id")
            }
            None => Status::Ok.because("each master is a server of its own"),
        },
        impact: "it votes twice, and its restart frees locks while they are held",
        fix: "name each master once",
    },
    HealthRule {
        id: "rejoin",
        rule: |all| {
            let keeps_all = |(_, facts): (_, &ServerFacts)| {
                facts.fsync.as_deref() == Some("always")
                    && facts.skips_fsync == Some(false)
                    && facts.has_aof == Some(true)
            };
            match all.rejoin_delay {
                Duration::ZERO if all.answering().all(keeps_all) => Status::Ok
                    .because("a master that restarts votes at once, and has kept every write"),
                Duration::ZERO => Status::Warning.because(
                    "rejoin-delay is 0s, and not every master is known to keep every write",
                ),
                delay => Status::Ok.because(format!(
                    "a master that restarts does not vote for {delay:?}"
                )),
            }
        },
        impact: "one that restarts may have forgotten a lock, and votes for a second holder",
        fix: "leave rejoin-delay at 30s, or set appendfsync to always and \
              no-appendfsync-on-rewrite to no",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn masters() -> Masters {
        let facts = |name: &str| ServerFacts {
            fsync: Some("always".to_owned()),
            skips_fsync: Some(false),
            has_aof: Some(true),
            run_id: Some(name.to_owned()),
            ..ServerFacts::default()
        };
        let master = |name: &str| (name.into(), Ok(facts(name)));
        Masters {
            masters: ["a:1", "b:1", "c:1"].map(master).to_vec(),
            rejoin_delay: Duration::from_secs(30),
        }
    }

    fn facts(all: &mut Masters, number: usize) -> &mut ServerFacts {
        all.masters[number].1.as_mut().unwrap()
    }

    #[test]
    fn each_fault_is_found_by_itself() {
        type Change = fn(&mut Masters);
        // Those that a quorum of servers shows are in `tests/quorum/health.rs`.
        let cases: [(Change, &str); 6] = [
            (|_| (), ""),
            (|all| all.rejoin_delay = Duration::ZERO, ""),
            (|all| facts(all, 1).fsync = None, ""),
            (|all| facts(all, 1).run_id = None, ""),
            (
                |all| {
                    all.rejoin_delay = Duration::ZERO;
                    facts(all, 1).has_aof = None;
                },
                "rejoin: rejoin-delay is 0s",
            ),
            (
                |all| {
                    all.rejoin_delay = Duration::ZERO;
                    facts(all, 1).skips_fsync = None;
                },
                "rejoin: rejoin-delay is 0s",
            ),
        ];
        for (change, expected) in cases {
            let mut all = masters();
            change(&mut all);
            let mut found = HealthRule::check_all(RULES, &all);
            found.retain(HealthCheck::is_fault);
            match expected.split_once(": ") {
                None => assert_eq!(found, []),
                Some((id, says)) => {
                    assert_eq!(found.len(), 1, "{found:?}");
                    assert_eq!(found[0].id, id);
                    assert!(found[0].summary.starts_with(says), "{}", found[0]);
                }
            }
        }
    }
}
