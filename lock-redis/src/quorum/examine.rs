//! Asking the masters of a quorum what they are like.

use std::sync::Arc;

use futures_util::StreamExt;
use lock_core::{Finding, Result};

use super::fitness::{Age, Master, findings};
use super::node::Node;
use super::{NAME, ensemble, let_in};
use crate::checks::{Facts, look, merged};
use crate::config::RedisConfig;
use crate::error::{Failure, Refusal};

/// Looks at the masters of a quorum, and closes the connections to them.
pub(crate) async fn examine(mut config: RedisConfig, namespace: &str) -> Result<Vec<Finding>> {
    let named = |error: lock_core::Error| error.with_backend(NAME);
    let ensemble = ensemble(&config).map_err(named)?;
    // As its nodes have it.
    config.push = false;
    let shared: (Arc<RedisConfig>, Arc<str>) = (Arc::new(config), namespace.into());
    let mut asking = ensemble.ask(
        |_| true,
        |node| {
            let (config, namespace) = shared.clone();
            async move { look_at(&node, &config, &namespace).await }
        },
    );
    let mut masters: Vec<Master> = Vec::new();
    masters.resize_with(ensemble.len(), Master::default);
    let (mut failures, mut found) = (Vec::new(), Vec::new());
    while let Some((number, answer)) = asking.next().await {
        let name: Arc<str> = ensemble.nodes[number].name.as_str().into();
        match answer {
            Ok((facts, age, findings)) => {
                masters[number].facts = facts;
                masters[number].age = age;
                found.push((number, (name, findings)));
            }
            Err(failure) => {
                masters[number].failure = Some(failure.cause.to_string());
                failures.push(failure);
            }
        }
    }
    if ensemble.is_too_few(failures.len()) {
        return Err(named(ensemble.silence(&failures, &[])));
    }
    found.sort_by_key(|(number, _)| *number);
    let mut found = merged(found.into_iter().map(|(_, of_one)| of_one).collect());
    found.extend(findings(&masters, &shared.0));
    Ok(found)
}

async fn look_at(
    node: &Node,
    config: &RedisConfig,
    namespace: &str,
) -> Result<(Facts, Age, Vec<Finding>), Failure> {
    let link = &*node.server.link;
    let_in(link, config).await?;
    let (mut facts, found) = look(link, config, namespace).await?;
    let age = match node.known_age().await {
        Ok(age) => Age::Known(age),
        Err(failure) if failure.refusal() == Some(Refusal::NoPerm) => Age::Denied,
        Err(_) => Age::Unknown,
    };
    Ok((facts.swap_remove(0), age, found))
}
