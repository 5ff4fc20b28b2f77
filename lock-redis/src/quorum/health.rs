//! The health checks of a quorum: each master's own, and those of all together.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lock_core::{Error, HealthCheck, Result};

use super::node::QuorumNode;
use super::votes::majority;
use super::{NAME, let_in, open};
use crate::checks::{Facts, look, merged};
use crate::config::{Endpoint, RedisConfig, Servers};
use crate::error::{Failure, Refusal};
use crate::keys::AGE_KEY;

/// Looks at the masters of a quorum, and closes the connections to them.
pub(crate) async fn check_health(mut config: RedisConfig) -> Result<Vec<HealthCheck>> {
    let named = |error: Error| error.with_backend(NAME);
    let quorum = open(&config).map_err(named)?;
    // As its nodes have it.
    config.push = false;
    let config = Arc::new(config);
    let mut answers = quorum.ask(|node| {
        let config = Arc::clone(&config);
        async move { look_at(&node, &config).await }
    });
    let mut masters = vec![Master::default(); quorum.len()];
    let mut found = vec![None; quorum.len()];
    let mut failures = Vec::new();
    while let Some((number, answer)) = answers.next().await {
        let master = &mut masters[number];
        match answer {
            Ok((facts, age, health_checks)) => {
                (master.facts, master.age) = (facts, age);
                let name: Arc<str> = quorum.nodes[number].name.as_str().into();
                found[number] = Some((name, health_checks));
            }
            Err(failure) => {
                master.failure = Some(failure.cause.to_string());
                failures.push(failure);
            }
        }
    }
    if quorum.is_too_few(failures.len()) {
        return Err(named(quorum.unavailable(&failures, &[])));
    }
    let mut found = merged(found.into_iter().flatten().collect());
    found.extend(health_checks(&masters, &config));
    Ok(found)
}

async fn look_at(
    node: &QuorumNode,
    config: &RedisConfig,
) -> Result<(Facts, Age, Vec<HealthCheck>), Failure> {
    let topology = &*node.server.topology;
    let_in(topology, config).await?;
    let (mut facts, found) = look(topology, config).await?;
    let age = match node.known_age().await {
        Ok(age) => Age::Known(age),
        Err(failure) if failure.refusal() == Some(Refusal::NoPerm) => Age::Denied,
        Err(_) => Age::Unknown,
    };
    Ok((facts.swap_remove(0), age, found))
}

/// What is known of one master.
#[derive(Clone, Debug, Default)]
struct Master {
    facts: Facts,
    age: Age,
    /// Why nothing is.
    failure: Option<String>,
}

/// How long clients know it to be up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Age {
    /// This user may not use the key that says it.
    Denied,
    Known(Duration),
    #[default]
    Unknown,
}

/// What each check of all masters together shows. Pure.
fn health_checks(masters: &[Master], config: &RedisConfig) -> Vec<HealthCheck> {
    let endpoints = match &config.servers {
        Servers::Quorum(endpoints) => &endpoints[..],
        _ => &[],
    };
    vec![
        size(masters.len()),
        nodes(masters),
        same_server(masters, endpoints),
        same_host(endpoints),
        rejoin(masters, config.rejoin_delay),
    ]
}

fn size(count: usize) -> HealthCheck {
    let needed = majority(count);
    let what = format!("the quorum has {count} masters, of which {needed} have to answer");
    if !count.is_multiple_of(2) {
        return HealthCheck::ok("quorum", what);
    }
    let fewer = count - 1;
    let impact = format!("it carries the loss of no more of them than {fewer} do");
    HealthCheck::warning("quorum", what, impact, "add one or leave one out")
}

fn nodes(masters: &[Master]) -> HealthCheck {
    let failures = masters
        .iter()
        .filter_map(|master| master.failure.as_deref());
    let failures: Vec<&str> = failures.collect();
    if failures.is_empty() {
        return HealthCheck::ok("nodes", "all masters answer");
    }
    let (count, of, causes) = (failures.len(), masters.len(), failures.join("; "));
    HealthCheck::warning(
        "nodes",
        format!("{count} of {of} masters do not answer: {causes}"),
        "the quorum carries the loss of so many fewer",
        "bring them back, or have all clients name others",
    )
}

fn same_server(masters: &[Master], endpoints: &[Endpoint]) -> HealthCheck {
    let ids = masters.iter().map(|master| master.facts.run_id.as_ref());
    let ids: Vec<_> = ids.collect();
    for (at, id) in ids.iter().enumerate().filter(|(_, id)| id.is_some()) {
        let first = ids[..at].iter().position(|earlier| earlier == id);
        if let (Some(first), Some(one)) = (first, endpoints.get(at)) {
            let other = &endpoints[first];
            return HealthCheck::error(
                "same-server",
                format!("{other} and {one} are the same server"),
                "it votes twice, and its restart frees locks while they are held",
                "name each master once",
            );
        }
    }
    if ids.contains(&None) {
        let what = "INFO does not tell of each master which one it is";
        return HealthCheck::not_checked("same-server", what);
    }
    HealthCheck::ok("same-server", "each master is a server of its own")
}

fn same_host(endpoints: &[Endpoint]) -> HealthCheck {
    let hosts = endpoints.iter().filter_map(|endpoint| match endpoint {
        Endpoint::Tcp { host, .. } => Some(host.as_str()),
        Endpoint::Unix(_) => None,
    });
    let hosts: Vec<&str> = hosts.collect();
    let is_twice = |host: &str| hosts.iter().filter(|other| **other == host).count() > 1;
    // A quorum on the own machine is a trial.
    let mut shared = hosts
        .iter()
        .filter(|host| is_twice(host) && !is_loopback(host));
    match shared.next() {
        Some(host) => HealthCheck::warning(
            "same-host",
            format!("several masters are on {host}"),
            "they fail together, which the quorum does not reckon with",
            "put each master on a machine of its own",
        ),
        None => HealthCheck::ok("same-host", "no two masters are on a host of the network"),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a master that restarts may vote for a second holder, and whether some cannot vote yet.
fn rejoin(masters: &[Master], delay: Duration) -> HealthCheck {
    let mut answering = masters.iter().filter(|master| master.failure.is_none());
    if delay.is_zero() {
        let keeps_all = |master: &Master| {
            let facts = &master.facts;
            facts.fsync.as_deref() == Some("always") && facts.has_aof == Some(true)
        };
        if answering.all(keeps_all) {
            let what = "a master that restarts votes at once, and has kept every write";
            return HealthCheck::ok("rejoin", what);
        }
        return HealthCheck::warning(
            "rejoin",
            "rejoin-delay is 0s, and not every master is known to keep every write",
            "one that restarts may have forgotten a lock, and votes for a second holder",
            "leave rejoin-delay at 30s, or set appendfsync to always",
        );
    }
    if answering
        .clone()
        .any(|master| master.facts.run_id.is_none())
    {
        return HealthCheck::error(
            "rejoin",
            "this user may not run INFO, which says whether a master has restarted",
            "nothing can be acquired: one that has may have forgotten a lock",
            "give the user +info",
        );
    }
    if answering.clone().any(|master| master.age == Age::Denied) {
        return HealthCheck::warning(
            "rejoin",
            format!(
                "this user may not use the key {AGE_KEY}, where clients note how old a master is"
            ),
            format!("each client watches the masters for {delay:?} before it acquires anything"),
            format!("give the user ~{AGE_KEY}"),
        );
    }
    let is_old = |master: &&Master| matches!(master.age, Age::Known(age) if age >= delay);
    let (may_vote, of) = (answering.filter(is_old).count(), masters.len());
    if may_vote < majority(of) {
        return HealthCheck::warning(
            "rejoin",
            format!("{may_vote} of {of} masters are known to be up for {delay:?}"),
            "nothing can be acquired until clients have watched a majority for so long",
            "let a client wait for longer, or give a quorum that nobody has used yet \
             rejoin-delay=0s until then",
        );
    }
    let what = format!("a master that restarts does not vote for {delay:?}");
    HealthCheck::ok("rejoin", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(run_id: &str) -> Master {
        let facts = Facts {
            fsync: Some("everysec".to_owned()),
            has_aof: Some(true),
            run_id: Some(run_id.to_owned()),
            ..Facts::default()
        };
        Master {
            facts,
            age: Age::Known(Duration::from_secs(30)),
            failure: None,
        }
    }

    fn masters() -> Vec<Master> {
        ["a", "b", "c"].map(master).to_vec()
    }

    fn config(hosts: &[&str]) -> RedisConfig {
        RedisConfig::quorum(hosts.iter().map(|host| (*host, 6379)))
    }

    fn faults(masters: &[Master], config: &RedisConfig) -> Vec<String> {
        let found = health_checks(masters, config);
        let faults = found.iter().filter(|health| health.is_fault());
        faults
            .map(|health| format!("{} {health}", health.id))
            .collect()
    }

    type Change = fn(&mut Vec<Master>, &mut RedisConfig);

    #[test]
    fn each_fault_is_found_by_itself() {
        let hosts = ["a", "b", "c"];
        assert!(faults(&masters(), &config(&hosts)).is_empty());
        let cases: [(Change, &str); 9] = [
            (|m, _| m.push(master("d")), "quorum the quorum has 4"),
            (
                |m, _| m[1].failure = Some("b: no route".to_owned()),
                "nodes 1 of 3 masters do not answer: b: no route",
            ),
            (
                |m, _| m[2].facts.run_id = Some("a".to_owned()),
                "same-server a:6379 and c:6379 are the same",
            ),
            (
                |_, c| *c = config(&["a", "b", "b"]),
                "same-host several masters are on b",
            ),
            (
                |_, c| c.rejoin_delay = Duration::ZERO,
                "rejoin rejoin-delay is 0s",
            ),
            (
                |m, _| m[0].facts.run_id = None,
                "rejoin this user may not run INFO",
            ),
            (
                |m, _| m[0].age = Age::Denied,
                "rejoin this user may not use the key {polylock:age}:notes:notes",
            ),
            (
                |m, _| {
                    m[0].age = Age::Unknown;
                    m[1].age = Age::Known(Duration::from_secs(29));
                },
                "rejoin 1 of 3 masters are known to be up for 30s",
            ),
            (
                |m, c| {
                    c.rejoin_delay = Duration::ZERO;
                    m[0].facts.fsync = Some("always".to_owned());
                },
                "rejoin rejoin-delay is 0s",
            ),
        ];
        for (change, says) in cases {
            let (mut masters, mut config) = (masters(), config(&hosts));
            change(&mut masters, &mut config);
            let found = faults(&masters, &config);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(says), "{found:?}");
        }
    }

    #[test]
    fn what_is_harmless_is_not_found() {
        let own = config(&["127.0.0.1", "127.0.0.1", "::1"]);
        assert!(faults(&masters(), &own).is_empty());
        let mut masters = masters();
        for master in &mut masters {
            master.facts.fsync = Some("always".to_owned());
        }
        masters[0].age = Age::Known(Duration::ZERO);
        let mut config = config(&["a", "b", "c"]);
        assert!(faults(&masters, &config).is_empty());
        config.rejoin_delay = Duration::ZERO;
        assert!(faults(&masters, &config).is_empty());
    }
}
