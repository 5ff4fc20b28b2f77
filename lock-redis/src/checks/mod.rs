//! What is looked at before a server gets locks to keep.
//!
//! The names of the checks are `version`, `replica`, `cluster`, `eviction`, `persistence`, `flush`,
//! `replication` and `clock`, which are made at every start; `memory`, `client-timeout`, `hash-tag`,
//! `rights`, `scripts` and `push`; and of a quorum `quorum`, `nodes`, `same-server`, `same-host` and
//! `rejoin`.

mod besides;
mod facts;
mod merged;
mod rights;
mod server;
mod slots;
#[cfg(test)]
mod tests;
mod tried;

use std::sync::Arc;

use lock_core::Finding;

use crate::config::RedisConfig;
use crate::error::{Cause, Failure};
use crate::keys::Counter;
use crate::topology::Topology;

use self::facts::{AT_START, BESIDES, ask};
use self::server::{Wanted, findings};

pub(crate) use self::facts::Facts;
pub(crate) use self::merged::{merged, overlaid};

/// Inspects every master and warns of what it finds; with strict checks, refuses.
///
/// What the server does not tell this user is left out.
pub(crate) async fn check(topology: &dyn Topology, config: &RedisConfig) -> Result<(), Failure> {
    let mut found: Vec<Finding> = Vec::new();
    for facts in ask(topology, AT_START).await? {
        for finding in findings(&facts, &Wanted::of(config)) {
            if finding.is_fault() && !found.contains(&finding) {
                found.push(finding);
            }
        }
    }
    if config.strict && !found.is_empty() {
        let found: Vec<_> = found.iter().map(Finding::to_string).collect();
        let message = format!("strict=on refuses this server: {}", found.join(". "));
        return Err(Cause::Config(message).into());
    }
    for Finding {
        what, why, way_out, ..
    } in found
    {
        tracing::warn!(%what, %why, %way_out, "a server is not fit for locks");
    }
    Ok(())
}

/// Inspects every master, and tries out what locks of a namespace need: what each
/// master says of itself, and what each check shows.
pub(crate) async fn look(
    topology: &dyn Topology,
    config: &RedisConfig,
    namespace: &str,
) -> Result<(Vec<Facts>, Vec<Finding>), Failure> {
    let wanted = Wanted::of(config);
    let mut servers = ask(topology, BESIDES).await?;
    if servers.is_empty() {
        servers.push(Facts::default());
    }
    let of_one = |facts: &Facts| {
        let mut found = findings(facts, &wanted);
        found.extend(besides::findings(facts));
        (Arc::clone(&facts.server), found)
    };
    let found = merged(servers.iter().map(of_one).collect());
    let mut seen = Vec::new();
    let layout = match wanted.cluster {
        true => slots::ask(topology).await?,
        false => None,
    };
    seen.extend(layout.as_ref().and_then(slots::finding));
    seen.extend(wanted.cluster.then(|| slots::hash_tag(namespace)));
    let keys = slots::scratch(layout.as_ref(), namespace, Counter::of(config))?;
    let done = tried::try_out(topology, config, &keys).await?;
    seen.extend(rights::findings(&done, config, namespace));
    Ok((servers, overlaid(found, seen)))
}
