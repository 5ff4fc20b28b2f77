//! What a quorum is like besides what each of its masters is. Pure.

use std::net::IpAddr;
use std::time::Duration;

use lock_core::Finding;

use super::vote::majority;
use crate::checks::Facts;
use crate::config::{Endpoint, RedisConfig, Servers};
use crate::keys::AGE_KEY;

/// What is known of one of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Master {
    pub(super) facts: Facts,
    pub(super) age: Age,
    /// Why nothing is.
    pub(super) failure: Option<String>,
}

/// For how long clients know it to be up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Age {
    /// This user may not use the key that says it.
    Denied,
    Known(Duration),
    #[default]
    Unknown,
}

/// What each check shows.
pub(super) fn findings(masters: &[Master], config: &RedisConfig) -> Vec<Finding> {
    let endpoints = match &config.servers {
        Servers::Quorum(endpoints) => &endpoints[..],
        _ => &[],
    };
    vec![
        quorum(masters.len()),
        nodes(masters),
        same_server(masters, endpoints),
        same_host(endpoints),
        rejoin(masters, config.rejoin_delay),
    ]
}

fn quorum(count: usize) -> Finding {
    let needed = majority(count);
    if count.is_multiple_of(2) {
        return Finding::warning(
            "quorum",
            format!("the quorum has {count} masters, of which {needed} have to answer"),
            format!(
                "it carries the loss of no more of them than {} do",
                count - 1
            ),
            "add one or leave one out",
        );
    }
    let what = format!("the quorum has {count} masters, of which {needed} have to answer");
    Finding::good("quorum", what)
}

fn nodes(masters: &[Master]) -> Finding {
    let failures: Vec<&str> = masters
        .iter()
        .filter_map(|master| master.failure.as_deref())
        .collect();
    if failures.is_empty() {
        return Finding::good("nodes", "all masters answer");
    }
    Finding::warning(
        "nodes",
        format!(
            "{} of {} masters do not answer: {}",
            failures.len(),
            masters.len(),
            failures.join("; ")
        ),
        "the quorum carries the loss of so many fewer",
        "bring them back, or have all clients name others",
    )
}

fn same_server(masters: &[Master], endpoints: &[Endpoint]) -> Finding {
    let ids: Vec<_> = masters
        .iter()
        .map(|master| master.facts.run_id.as_ref())
        .collect();
    for (at, id) in ids.iter().enumerate() {
        let first = ids[..at]
            .iter()
            .position(|earlier| id.is_some() && earlier == id);
        if let (Some(first), Some(one)) = (first, endpoints.get(at)) {
            let other = &endpoints[first];
            return Finding::error(
                "same-server",
                format!("{other} and {one} are the same server"),
                "it votes twice, and its restart frees locks while they are held",
                "name each master once",
            );
        }
    }
    let untold = masters
        .iter()
        .filter(|master| master.facts.run_id.is_none());
    match untold.count() {
        0 => Finding::good("same-server", "each master is a server of its own"),
        _ => Finding::unknown(
            "same-server",
            "INFO does not tell of each master which one it is",
        ),
    }
}

fn same_host(endpoints: &[Endpoint]) -> Finding {
    let hosts: Vec<&str> = endpoints
        .iter()
        .filter_map(|endpoint| match endpoint {
            Endpoint::Tcp { host, .. } => Some(host.as_str()),
            Endpoint::Unix(_) => None,
        })
        .collect();
    let is_twice = |host: &&&str| hosts.iter().filter(|other| other == host).count() > 1;
    // Who tries a quorum out on one machine knows that it is one.
    match hosts
        .iter()
        .filter(is_twice)
        .find(|host| !is_loopback(host))
    {
        Some(host) => Finding::warning(
            "same-host",
            format!("several masters are on {host}"),
            "they fail together, which the quorum does not reckon with",
            "put each master on a machine of its own",
        ),
        None => Finding::good("same-host", "no two masters are on a host of the network"),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a master that restarts may vote for a second holder, and whether some cannot vote yet.
fn rejoin(masters: &[Master], delay: Duration) -> Finding {
    let answering = || masters.iter().filter(|master| master.failure.is_none());
    if delay.is_zero() {
        let keeps_all = |master: &Master| master.facts.fsync.as_deref() == Some("always");
        let appends = |master: &Master| master.facts.has_aof == Some(true);
        if answering().all(|master| keeps_all(master) && appends(master)) {
            let what = "a master that restarts votes at once, and has kept every write";
            return Finding::good("rejoin", what);
        }
        return Finding::warning(
            "rejoin",
            "rejoin-delay is 0s, and not every master is known to keep every write",
            "one that restarts may have forgotten a lock, and votes for a second holder",
            "leave rejoin-delay at 30s, or set appendfsync to always",
        );
    }
    if answering().any(|master| master.facts.run_id.is_none()) {
        return Finding::error(
            "rejoin",
            "this user may not run INFO, which says whether a master has restarted",
            "nothing can be acquired: one that has may have forgotten a lock",
            "give the user +info",
        );
    }
    if answering().any(|master| master.age == Age::Denied) {
        return Finding::warning(
            "rejoin",
            format!(
                "this user may not use the key {AGE_KEY}, where clients note how old a master is"
            ),
            format!("each client watches the masters for {delay:?} before it acquires anything"),
            format!("give the user ~{AGE_KEY}"),
        );
    }
    let is_old = |master: &&Master| matches!(master.age, Age::Known(age) if age >= delay);
    let may_vote = answering().filter(is_old).count();
    if may_vote < majority(masters.len()) {
        return Finding::warning(
            "rejoin",
            format!(
                "{may_vote} of {} masters are known to be up for {delay:?}",
                masters.len()
            ),
            "nothing can be acquired until clients have watched a majority for so long",
            "let a client wait for longer, or give a quorum that nobody has used yet \
             rejoin-delay=0s until then",
        );
    }
    let what = format!("a master that restarts does not vote for {delay:?}");
    Finding::good("rejoin", what)
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
        let found = findings(masters, config);
        let faults = found.iter().filter(|finding| finding.is_fault());
        faults
            .map(|finding| format!("{} {finding}", finding.check))
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
