use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt};
use tokio::time::Instant;

use super::connector::Connectors;
use super::context::ConnectionContext;
use super::node::RedisNode;
use super::on_demand::OnDemand;
use super::slots::Slots;
use crate::config::{Endpoint, RedisConfig};
use crate::error::{RedisCause, RedisFailure};
use crate::locked;
use polylock_core::engine::before;

/// The nodes of a cluster, and which of them has which slot.
#[derive(Debug)]
pub(super) struct Map {
    seeds: Vec<Endpoint>,
    pub(super) connectors: Connectors,
    shared: Arc<ConnectionContext>,
    slots: Arc<OnDemand<Arc<Slots>>>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The last map, outdated or not.
    slots: Option<Arc<Slots>>,
    /// When it was read.
    read: Option<Instant>,
    nodes: HashMap<Endpoint, Arc<RedisNode>>,
    /// The last server that said that the cluster is down: it may be on the wrong side of a partition.
    down: Option<Arc<str>>,
}

impl Map {
    pub(super) fn new(
        config: &RedisConfig,
        seeds: &[Endpoint],
        shared: Arc<ConnectionContext>,
    ) -> Self {
        Self {
            seeds: seeds.to_vec(),
            connectors: Connectors::new(config, &shared),
            slots: OnDemand::new(&shared, silent(&shared)),
            shared,
            known: Mutex::default(),
        }
    }

    pub(super) async fn slots(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Arc<Slots>, RedisFailure> {
        if let Some(slots) = self.slots.present() {
            return Ok(slots);
        }
        let make = || Arc::clone(self).ask();
        // Not on the runtime of the caller, which may be blocked while others wait for the map.
        let spawn = |task| self.shared.engine.spawn_service(task);
        self.slots.get(spawn, deadline, make).await
    }

    /// Reads the map anew. Requests use the present one meanwhile, and go on with it if this is dropped or fails.
    pub(super) async fn refresh(self: &Arc<Self>) -> Result<(), RedisFailure> {
        let known = || locked(&self.known).slots.clone();
        let before = known();
        let slots = match self.ask_master().await {
            Some(slots) => {
                // Another request may have read a newer one meanwhile.
                if before.as_ref().map(Arc::as_ptr) != known().as_ref().map(Arc::as_ptr) {
                    return Ok(());
                }
                let slots = Arc::new(slots);
                self.adopt(&slots);
                slots
            }
            None => Arc::clone(self).ask().await?,
        };
        self.slots.change(|_| true, |now| *now = slots);
        Ok(())
    }

    /// Queries one master of the last map; `None` if that does not reply soon.
    async fn ask_master(&self) -> Option<Slots> {
        let slots = locked(&self.known).slots.clone()?;
        let asked = self.ask_one(slots.masters().first()?);
        let soon = Instant::now() + self.shared.timeout / 4;
        before(soon, asked).await?.ok()
    }

    /// Whether a node has slots in the last map, or is a replica of one that has.
    pub(super) fn lists(&self, endpoint: &Endpoint) -> bool {
        let slots = locked(&self.known).slots.clone();
        slots.is_some_and(|slots| slots.lists(endpoint))
    }

    /// Queries the nodes again, unless a query is under way.
    pub(super) fn outdated(&self, slots: &Arc<Slots>) {
        self.slots.discard(|now| Arc::ptr_eq(now, slots));
    }

    /// Queries the nodes again, unless that was done a moment ago: many callers may give up at once, and a server may
    /// only be slow.
    pub(super) fn suspect(&self, slots: &Arc<Slots>) {
        let read = locked(&self.known).read;
        if read.is_none_or(|read| read.elapsed() >= MIN_QUERY_INTERVAL) {
            self.outdated(slots);
        }
    }

    /// Makes the next query prefer maps without this server, which says that the cluster is down.
    pub(super) fn doubt(&self, server: &Arc<str>) {
        locked(&self.known).down = Some(Arc::clone(server));
    }

    pub(super) fn node(&self, endpoint: &Endpoint) -> Result<Arc<RedisNode>, RedisFailure> {
        let mut known = locked(&self.known);
        if let Some(node) = known.nodes.get(endpoint) {
            return Ok(Arc::clone(node));
        }
        let connector = self.connectors.to(endpoint)?;
        let node = Arc::new(RedisNode::new(connector, Arc::clone(&self.shared)));
        known.nodes.insert(endpoint.clone(), Arc::clone(&node));
        Ok(node)
    }

    /// The nodes to query: the masters of the last map, and those of the configuration.
    pub(super) fn candidates(&self) -> Vec<Endpoint> {
        let known = locked(&self.known);
        let masters = known.slots.iter().flat_map(|slots| slots.masters());
        let mut candidates: Vec<_> = masters.cloned().collect();
        drop(known);
        for seed in &self.seeds {
            if !candidates.contains(seed) {
                candidates.push(seed.clone());
            }
        }
        candidates
    }

    async fn ask(self: Arc<Self>) -> Result<Arc<Slots>, RedisFailure> {
        let found = before(self.shared.connect_deadline(), self.ask_all()).await;
        let found = found.flatten();
        let slots = Arc::new(found.unwrap_or_else(|| Err(silent(&self.shared)))?);
        self.adopt(&slots);
        Ok(slots)
    }

    /// Queries all known nodes at once, and uses the first reply; `None` without one in time.
    async fn ask_all(&self) -> Option<Result<Slots, RedisFailure>> {
        let candidates = self.candidates();
        let down = locked(&self.known).down.take();
        let down = down.as_deref();
        let asked = candidates.iter().map(|endpoint| async move {
            let answer = self.ask_one(endpoint).await;
            let has_it = |slots: &Slots| down.is_some_and(|down| slots.has_master(down));
            (answer.as_ref().is_ok_and(has_it), answer)
        });
        let asked: FuturesUnordered<_> = asked.collect();
        // A caller needs the rest of its timeout for the request itself.
        first_map(asked, self.shared.timeout / 4).await
    }

    async fn ask_one(&self, endpoint: &Endpoint) -> Result<Slots, RedisFailure> {
        let mut request = redis::cmd("CLUSTER");
        request.arg("SLOTS");
        let node = locked(&self.known).nodes.get(endpoint).map(Arc::clone);
        let answer = match node {
            Some(node) => node.run(&request).await?,
            // It may be a replica, which gets no other requests.
            None => self.connectors.ask_once(endpoint, &request).await?,
        };
        let server: Arc<str> = endpoint.to_string().into();
        match Slots::read(answer, endpoint) {
            None => Err(RedisCause::malformed(&server, "CLUSTER SLOTS").into()),
            Some(slots) if slots.masters().is_empty() => {
                Err(RedisCause::Uncovered { slot: 0 }.into())
            }
            Some(slots) => Ok(slots),
        }
    }

    fn adopt(&self, slots: &Arc<Slots>) {
        let mut known = locked(&self.known);
        let old = known.slots.replace(Arc::clone(slots));
        known.read = Some(Instant::now());
        let is_gone = |endpoint: &Endpoint, _: &mut _| !slots.masters().contains(endpoint);
        let gone: Vec<_> = known.nodes.extract_if(is_gone).collect();
        drop(known);
        for (_, node) in gone {
            node.hang_up();
        }
        if old.is_some_and(|old| slots.lacks_one_of(&old)) {
            tracing::debug!("a master of the cluster has been replaced");
            self.shared.events.on_failover();
        }
    }
}

/// The first map among the answers, or the last failure. The flag marks a doubtful map, with a master
/// that called the cluster down: it counts only if no other map comes within `wait_for_better` after it.
async fn first_map<T: Send>(
    mut answers: impl Stream<Item = (bool, Result<T, RedisFailure>)> + Send + Unpin,
    wait_for_better: Duration,
) -> Option<Result<T, RedisFailure>> {
    let mut failure = None;
    let first = loop {
        match answers.next().await {
            Some((true, Ok(map))) => break map,
            Some((false, Ok(map))) => return Some(Ok(map)),
            Some((_, Err(why))) => failure = Some(Err(why)),
            None => return failure,
        }
    };
    let better = async {
        while let Some((is_doubtful, answer)) = answers.next().await {
            if !is_doubtful && answer.is_ok() {
                return Some(answer);
            }
        }
        None
    };
    let better = before(Instant::now() + wait_for_better, better).await;
    better.flatten().or(Some(Ok(first)))
}

/// Min time between two queries because of calls that were given up.
const MIN_QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// No node has answered in time.
pub(super) fn silent(shared: &ConnectionContext) -> RedisFailure {
    RedisFailure::silent(&"the cluster".into(), shared.timeout, false)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn a_doubtful_map_is_used_only_without_another_one() {
        let failed = || Err(RedisCause::Uncovered { slot: 0 }.into());
        for (answers, expected) in [
            (vec![(true, Ok(1)), (false, Ok(2))], Some(2)),
            (vec![(false, Ok(2)), (true, Ok(1))], Some(2)),
            (vec![(true, Ok(1)), (false, failed())], Some(1)),
            (vec![(true, failed()), (false, failed())], None),
        ] {
            let found = first_map(stream::iter(answers), LONG).await;
            let found = found.expect("an answer");
            assert_eq!(found.ok(), expected);
        }
        let none = stream::iter(Vec::<(bool, Result<u8, RedisFailure>)>::new());
        assert!(first_map(none, LONG).await.is_none());
    }

    #[tokio::test]
    async fn a_node_that_hangs_does_not_discard_a_doubtful_map() {
        let silent = stream::pending::<(bool, Result<u8, RedisFailure>)>();
        let answers = stream::iter([(true, Ok(1))]).chain(silent);
        let found = first_map(answers, Duration::from_millis(1)).await;
        assert!(matches!(found, Some(Ok(1))));
    }

    const LONG: Duration = Duration::from_secs(60);
}
