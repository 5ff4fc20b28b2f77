//! What it shows that something was tried. Pure.

use lock_core::Finding;

use super::tried::{Push, Refused, Tried};
use crate::config::{RedisConfig, Servers};
use crate::error::Refusal;

/// What each check shows.
pub(super) fn findings(tried: &Tried, config: &RedisConfig, namespace: &str) -> Vec<Finding> {
    let mut found = rights(tried, namespace);
    if found.is_empty() {
        found.push(match tried.refused.is_empty() {
            true => Finding::good("rights", "this user may do all that locks need"),
            false => Finding::unknown("rights", "the server runs no script that would tell"),
        });
    }
    let failed = tried.failed.iter().map(|(_, refusal)| *refusal);
    let refused = tried.refused.iter().map(|(_, refusal)| *refusal);
    let mut others: Vec<Refusal> = Vec::new();
    for refusal in failed.chain(refused) {
        if refusal != Refusal::NoPerm && !others.contains(&refusal) {
            others.push(refusal);
        }
    }
    if others.is_empty() {
        if tried.refused.is_empty() {
            found.push(Finding::good(
                "scripts",
                "the server runs scripts that write",
            ));
        } else {
            found.push(Finding::unknown("scripts", "none may be run by this user"));
        }
    }
    found.extend(others.into_iter().map(trouble));
    if !matches!(config.servers, Servers::Quorum(_)) {
        found.push(push_of(tried, config));
    }
    found
}

fn push_of(tried: &Tried, config: &RedisConfig) -> Finding {
    let is_wanted = config.push && config.resp3;
    match tried.push {
        Some(Push::Impossible) => Finding::warning(
            "push",
            "the server, or a proxy before it, knows no RESP3",
            "waiters ask again and again instead of being told",
            "let clients reach Redis 6.0 or later without a proxy that speaks RESP2 only",
        ),
        Some(Push::Heard) => Finding::good("push", "waiters are told when it is their turn"),
        Some(Push::Denied) | None if is_wanted => {
            Finding::unknown("push", "nothing could be subscribed to")
        }
        Some(Push::Denied) | None => Finding::good(
            "push",
            "waiters ask again and again, as they are configured to",
        ),
    }
}

fn rights(tried: &Tried, namespace: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let is = |what: Refused| tried.refused.contains(&(what, Refusal::NoPerm));
    if is(Refused::Command) {
        found.push(Finding::error(
            "rights",
            "this user may not run EVALSHA or EVAL",
            "every lock is taken by a script",
            "give the user +evalsha and +eval, and what docs/backends/redis.md lists besides",
        ));
    }
    if is(Refused::Keys) {
        let prefix = match namespace {
            "" => String::new(),
            _ => format!("{namespace}:"),
        };
        found.push(Finding::error(
            "rights",
            format!("this user may not use the keys of locks, which begin with {prefix:?}"),
            "nothing can be acquired",
            format!(
                "give the user ~{prefix}* ~{{{prefix}* ~{{*}}:{{{prefix}* ~{{{namespace}}}:tokens \
                 ~{{*}}:{namespace}:tokens"
            ),
        ));
    }
    let mut denied: Vec<&str> = Vec::new();
    for (command, refusal) in &tried.failed {
        if *refusal == Refusal::NoPerm && !denied.contains(&command.as_str()) {
            denied.push(command);
        }
    }
    if tried.no_wait {
        denied.push("wait");
    }
    if !denied.is_empty() {
        found.push(Finding::error(
            "rights",
            format!("this user may not run {}", denied.join(", ")),
            "locks that come to need it are refused",
            format!("give the user +{}", denied.join(" +")),
        ));
    }
    // Who may not run a script has no use for a channel.
    if found.is_empty() && tried.push == Some(Push::Denied) {
        found.push(Finding::warning(
            "rights",
            "this user may not subscribe to the channels polylock:*, or not publish there",
            "waiters ask again and again instead of being told",
            "give the user +subscribe +publish &polylock:*",
        ));
    }
    found
}

/// Why a script that tried to write could not.
fn trouble(refusal: Refusal) -> Finding {
    let what = format!("the server {refusal}");
    let error = |check, way_out: &'static str| {
        Finding::error(check, what.clone(), "nothing can be acquired", way_out)
    };
    match refusal {
        Refusal::ClusterDown => error("cluster", "see CLUSTER INFO and CLUSTER NODES"),
        Refusal::Full => error("memory", "raise maxmemory or remove data"),
        Refusal::Misconf => error("persistence", "see the log of the server"),
        Refusal::Moved | Refusal::CrossSlot => error("cluster", "use redis-cluster://"),
        Refusal::NoReplicas => error(
            "replication",
            "connect replicas, or lower min-replicas-to-write",
        ),
        Refusal::ReadOnly | Refusal::MasterDown => {
            error("replica", "name its master, or the Sentinels that know it")
        }
        _ => error(
            "scripts",
            "see what the server answers to EVAL \"return 1\" 0",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> RedisConfig {
        RedisConfig::new("a", 1)
    }

    fn good() -> Tried {
        Tried {
            push: Some(Push::Heard),
            ..Tried::default()
        }
    }

    fn texts(tried: &Tried, config: &RedisConfig) -> Vec<String> {
        let found = findings(tried, config, "shop");
        let text = |f: &Finding| format!("{} {} {f}", f.check, f.verdict.as_str());
        found.iter().map(text).collect()
    }

    type Change = fn(&mut Tried);

    #[test]
    fn each_refusal_is_a_fault_of_its_own() {
        let denied = |command: &str| (command.to_owned(), Refusal::NoPerm);
        let cases: [(Change, [&str; 3]); 10] = [
            (|_| {}, ["rights good", "scripts good", "push good"]),
            (
                |t| t.refused = vec![(Refused::Command, Refusal::NoPerm)],
                [
                    "rights error this user may not run EVALSHA",
                    "scripts unknown",
                    "push good",
                ],
            ),
            (
                |t| t.refused = vec![(Refused::Keys, Refusal::NoPerm); 3],
                [
                    "rights error this user may not use the keys",
                    "scripts unknown",
                    "push good",
                ],
            ),
            (
                |t| t.no_wait = true,
                [
                    "rights error this user may not run wait:",
                    "scripts good",
                    "push good",
                ],
            ),
            (
                |t| t.push = Some(Push::Denied),
                [
                    "rights warning this user may not subscribe",
                    "scripts good",
                    "push unknown",
                ],
            ),
            (
                |t| t.push = Some(Push::Impossible),
                ["rights good", "scripts good", "push warning"],
            ),
            (
                |t| t.refused = vec![(Refused::Other, Refusal::Busy)],
                [
                    "rights unknown",
                    "scripts error the server is kept busy",
                    "push good",
                ],
            ),
            (
                |t| t.refused = vec![(Refused::Other, Refusal::Moved)],
                ["rights unknown", "cluster error", "push good"],
            ),
            (
                |t| t.failed = vec![("set".to_owned(), Refusal::Full)],
                ["rights good", "memory error", "push good"],
            ),
            (
                |t| t.failed = vec![("set".to_owned(), Refusal::Misconf); 2],
                ["rights good", "persistence error", "push good"],
            ),
        ];
        for (change, expected) in cases {
            let mut tried = good();
            change(&mut tried);
            let found = texts(&tried, &config());
            let fits = found
                .iter()
                .zip(expected)
                .all(|(one, start)| one.starts_with(start));
            assert!(found.len() == 3 && fits, "{expected:?}: {found:#?}");
        }
        let mut tried = good();
        tried.failed = ["append", "hset", "append"].map(denied).to_vec();
        let rights = &texts(&tried, &config())[0];
        assert!(rights.contains("may not run append, hset:"), "{rights}");
        assert!(rights.ends_with("+append +hset"), "{rights}");
    }

    #[test]
    fn who_does_not_want_messages_misses_none() {
        for config in [config().without_push(), config().with_resp2()] {
            let found = texts(&Tried::default(), &config);
            assert!(found[2].starts_with("push good"), "{found:?}");
        }
        let found = texts(&Tried::default(), &config());
        assert!(found[2].starts_with("push unknown"), "{found:?}");
        let of_quorum = RedisConfig::quorum([("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(texts(&Tried::default(), &of_quorum).len(), 2);
    }
}
