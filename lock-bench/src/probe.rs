//! Requests of the benchmark to servers.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::subject::Failure;

pub(crate) type TargetFacts = BTreeMap<String, String>;

/// Asks a server, on a connection like that of the locks.
#[async_trait]
pub(crate) trait Probe: Send + Sync {
    /// Makes one round trip with the smallest command that there is.
    async fn ping(&self) -> Result<(), Failure>;

    /// Commands that the server has served since it was started, if it counts them. Each answer is
    /// larger by this question too.
    async fn commands(&self) -> Result<Option<u64>, Failure> {
        Ok(None)
    }

    /// Versions and durability settings, by name and without secrets.
    async fn facts(&self) -> Result<TargetFacts, Failure>;
}

pub(crate) fn facts(facts: impl IntoIterator<Item = (&'static str, String)>) -> TargetFacts {
    let facts = facts.into_iter();
    facts.map(|(name, fact)| (name.to_owned(), fact)).collect()
}
