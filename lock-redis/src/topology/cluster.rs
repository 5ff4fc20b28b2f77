use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::{Instant, sleep_until};

use super::call::{Call, Done};
use super::connection::SILENCE_LIMIT;
use super::context::ConnectionContext;
use super::contract::Topology;
use super::map::Map;
use super::node::RedisNode;
use super::pubsub::PubSub;
use super::slots::{Slots, endpoint};
use crate::config::{Endpoint, RedisConfig};
use crate::error::{RedisCause, RedisFailure, Refusal};
use crate::keys::slot;

/// A cluster.
///
/// Routing is done here and not by the client of the `redis` crate. That client repeats a request whose
/// outcome is unknown and reports only the last attempt, so an earlier one could have acquired the lock
/// unnoticed.
#[derive(Debug)]
pub(super) struct Cluster {
    map: Arc<Map>,
    pubsub: PubSub,
    shared: Arc<ConnectionContext>,
}

impl Cluster {
    pub(super) fn new(
        config: &RedisConfig,
        seeds: &[Endpoint],
        shared: Arc<ConnectionContext>,
    ) -> Self {
        let map = Arc::new(Map::new(config, seeds, Arc::clone(&shared)));
        let pubsub = PubSub::new(Arc::clone(&map), Arc::clone(&shared));
        Self {
            map,
            pubsub,
            shared,
        }
    }

    fn owner(&self, slots: &Slots, slot: u16) -> Result<Arc<RedisNode>, RedisFailure> {
        match slots.master(slot) {
            Some(endpoint) => self.map.node(endpoint),
            None => Err(RedisCause::Uncovered { slot }.into()),
        }
    }
}

/// A call whose node has not replied yet.
///
/// Its caller may give up before the call fails, as every renewal does: without a look at the map, it would
/// never follow the slot of a silent node to the new master.
struct WaitingCall<'a> {
    map: &'a Map,
    slots: &'a Arc<Slots>,
    since: Instant,
    is_over: bool,
}

impl<'a> WaitingCall<'a> {
    fn begin(map: &'a Map, slots: &'a Arc<Slots>) -> Self {
        Self {
            map,
            slots,
            since: Instant::now(),
            is_over: false,
        }
    }

    fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.since.elapsed() >= SILENCE_LIMIT {
            self.map.suspect(self.slots);
        }
    }
}

/// A slot has one owner, and a second one while it moves. Two nodes may refer to each other at the end of a
/// move.
const MAX_REDIRECTIONS: u32 = 5;

/// Whether nothing was executed, and a retry may succeed.
fn may_retry(failure: &RedisFailure) -> bool {
    if failure.outcome_unknown {
        return false;
    }
    match failure.cause {
        RedisCause::Connect { .. } | RedisCause::Uncovered { .. } => true,
        RedisCause::Refused { refusal, .. } => matches!(
            refusal,
            Refusal::ClusterDown
                | Refusal::Loading
                | Refusal::MasterDown
                | Refusal::ReadOnly
                | Refusal::TryAgain
        ),
        _ => false,
    }
}

/// Reads `host:port` in a redirection by the server `asked`. The host may be an IPv6 address.
fn target(text: &str, asked: &str) -> Option<Endpoint> {
    let (host, port) = text.rsplit_once(':')?;
    endpoint(host, port.parse().ok()?, asked)
}

#[async_trait]
impl Topology for Cluster {
    async fn open(&self) -> Result<(), RedisFailure> {
        let deadline = self.shared.connect_deadline();
        self.map.slots(deadline).await.map(drop)
    }

    async fn call(&self, call: Call<'_>) -> Result<Done, RedisFailure> {
        let deadline = self.shared.deadline();
        let slot = slot(call.kind.key());
        let mut slots = self.map.slots(deadline).await?;
        let mut way = self.owner(&slots, slot);
        let (mut redirections, mut asking) = (0, false);
        loop {
            let outcome = match way {
                Ok(node) => {
                    let waiting = WaitingCall::begin(&self.map, &slots);
                    let outcome = node.call(call, asking, deadline).await;
                    waiting.end();
                    outcome
                }
                Err(failure) => Err(failure),
            };
            let mut failure = match outcome {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let redirection = failure.redirection();
            if let Some(to) = redirection.and_then(|(to, asked)| target(to, asked)) {
                if redirections < MAX_REDIRECTIONS {
                    asking = failure.refusal() == Some(Refusal::Ask);
                    if !asking {
                        self.map.outdated(&slots);
                    }
                    redirections += 1;
                    way = self.map.node(&to);
                    continue;
                }
                failure = RedisCause::Undecided { slot }.into();
            } else if !may_retry(&failure) {
                if matches!(failure.refusal(), None | Some(Refusal::Moved)) {
                    self.map.outdated(&slots);
                }
                return Err(failure);
            }
            // Nothing was executed: another attempt follows after a pause.
            if let RedisCause::Refused {
                server,
                refusal: Refusal::ClusterDown,
                ..
            } = &failure.cause
            {
                self.map.doubt(server);
            }
            self.map.outdated(&slots);
            let next = Instant::now() + self.shared.pause();
            // If the deadline cut a retry off, a refusal would become an unknown outcome.
            if next + self.shared.timeout / 4 >= deadline {
                return Err(failure);
            }
            sleep_until(next).await;
            (redirections, asking) = (0, false);
            slots = match self.map.slots(deadline).await {
                Ok(slots) => slots,
                // The first reason says more.
                Err(_) => return Err(failure),
            };
            way = self.owner(&slots, slot);
        }
    }

    async fn channel(&self) -> Result<Option<Arc<str>>, RedisFailure> {
        self.pubsub.channel(self.shared.deadline()).await
    }

    fn subscribed(&self) -> Option<Arc<str>> {
        self.pubsub.subscribed()
    }

    async fn refresh(&self) -> Result<(), RedisFailure> {
        self.map.refresh().await
    }

    async fn masters(&self) -> Result<Vec<Arc<RedisNode>>, RedisFailure> {
        let slots = self.map.slots(self.shared.deadline()).await?;
        let masters = slots.masters().iter();
        masters.map(|endpoint| self.map.node(endpoint)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_without_a_host_stays_on_the_host_that_sent_it() {
        for (text, asked, expected) in [
            ("10.0.0.2:7001", "10.0.0.1:7000", Some(("10.0.0.2", 7001))),
            ("::1:7001", "10.0.0.1:7000", Some(("::1", 7001))),
            (":7001", "10.0.0.1:7000", Some(("10.0.0.1", 7001))),
            ("?:7001", "[::1]:7000", Some(("::1", 7001))),
            (":7001", "/run/redis.sock", None),
            ("10.0.0.2", "10.0.0.1:7000", None),
            ("10.0.0.2:70000", "10.0.0.1:7000", None),
        ] {
            let expected = expected.map(|(host, port)| Endpoint::tcp(host, port));
            assert_eq!(target(text, asked), expected, "{text} from {asked}");
        }
    }
}
