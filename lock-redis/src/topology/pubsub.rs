use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::SendError;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::context::{ConnectionContext, SubscriptionState};
use super::map::{Map, silent};
use crate::config::Endpoint;
use crate::error::RedisFailure;
use polylock_core::engine::before;

/// Receives the messages of a cluster through a connection to any of its nodes, since a cluster
/// forwards each message to all of them. It moves to another node when that one fails or is removed.
#[derive(Debug)]
pub(super) struct PubSub {
    search: Search,
    /// Ends the search, if it has begun.
    end: OnceLock<watch::Sender<()>>,
}

#[derive(Clone, Debug)]
enum PubSubState {
    /// A subscription is impossible.
    Denied,
    Listening,
    /// Not subscribed yet, or not at the moment; with the reason.
    Searching(Option<RedisFailure>),
}

impl PubSub {
    pub(super) fn new(map: Arc<Map>, shared: Arc<ConnectionContext>) -> Self {
        let state = Arc::new(watch::Sender::new(PubSubState::Searching(None)));
        Self {
            search: Search { map, shared, state },
            end: OnceLock::new(),
        }
    }

    pub(super) fn subscribed(&self) -> Option<Arc<str>> {
        let Search { shared, state, .. } = &self.search;
        let listens = matches!(*state.borrow(), PubSubState::Listening);
        listens.then(|| Arc::clone(&shared.channel))
    }

    pub(super) async fn channel(
        &self,
        deadline: Instant,
    ) -> Result<Option<Arc<str>>, RedisFailure> {
        let Search { shared, state, .. } = &self.search;
        if !shared.push {
            return Ok(None);
        }
        self.end.get_or_init(|| {
            let (search, (sender, mut end)) = (self.search.clone(), watch::channel(()));
            shared.engine.spawn_service(async move {
                tokio::select! {
                    () = search.run() => {}
                    _ = end.changed() => {}
                }
            });
            sender
        });
        let mut state = state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, PubSubState::Searching(None)));
        match before(deadline, settled).await {
            Some(Ok(state)) => match &*state {
                PubSubState::Denied => Ok(None),
                PubSubState::Listening => Ok(Some(Arc::clone(&shared.channel))),
                PubSubState::Searching(why) => Err(why.clone().unwrap_or_else(|| silent(shared))),
            },
            None | Some(Err(_)) => Err(silent(shared)),
        }
    }
}

/// Subscribes at one node, and at another one when it fails, for the life of the client.
#[derive(Clone, Debug)]
struct Search {
    map: Arc<Map>,
    shared: Arc<ConnectionContext>,
    state: Arc<watch::Sender<PubSubState>>,
}

impl Search {
    async fn run(&self) {
        let mut turn = 0_usize;
        loop {
            let candidates = self.map.candidates();
            let Some(endpoint) = candidates.get(turn % candidates.len().max(1)) else {
                return;
            };
            turn = turn.wrapping_add(1);
            match self.listen(endpoint).await {
                Ok(true) => {
                    self.set(PubSubState::Searching(None));
                    if !self.map.lists(endpoint) {
                        // Those of the map come first.
                        turn = 0;
                    }
                }
                Ok(false) => return self.set(PubSubState::Denied),
                Err(failure) => {
                    // Callers get the failure once all nodes were tried.
                    if turn.is_multiple_of(candidates.len()) {
                        self.set(PubSubState::Searching(Some(failure)));
                    }
                }
            }
            sleep(self.shared.pause()).await;
        }
    }

    /// Listens to one node until it fails or is removed from the cluster; false if a subscription is impossible.
    async fn listen(&self, endpoint: &Endpoint) -> Result<bool, RedisFailure> {
        let connector = self.map.connectors.to(endpoint)?;
        let over = Arc::new(Notify::new());
        let within = self.shared.connect_timeout;
        let opening = connector.open(self.pushed(&over), None);
        let (mut connection, pushes) = connector.in_time(within, opening).await?;
        let subscribing = self.shared.subscribe(&connector, &mut connection, pushes);
        let subscription = connector.in_time(within, subscribing).await?;
        if !pushes {
            return Ok(false);
        }
        // A user that may subscribe but not publish still receives messages about broken locks.
        self.set(match subscription {
            SubscriptionState::Subscribed => PubSubState::Listening,
            SubscriptionState::Denied | SubscriptionState::NotRequested => PubSubState::Denied,
        });
        // Only now: a break before this shows in a renewal, and a later one is published.
        self.shared.events.on_gap();
        let mut map_read = Instant::now();
        loop {
            let broke = timeout(BEAT, over.notified()).await.is_ok();
            // A stopped node keeps its connections open.
            let ping = redis::cmd("PING");
            let alive = async {
                let answer = connection.send_packed_command(&ping);
                matches!(timeout(within, answer).await, Ok(Ok(_)))
            };
            let is_over = broke || !alive.await || {
                let is_due = map_read.elapsed() >= MAP_INTERVAL;
                if is_due {
                    map_read = Instant::now();
                    // Nodes that do not reply are found by pings.
                    drop(self.map.refresh().await);
                }
                // A removed node that goes on gets no messages of the others.
                is_due && !self.map.lists(endpoint)
            };
            if is_over {
                // In this order: the receivers of the event query the channel.
                self.set(PubSubState::Searching(None));
                self.shared.events.on_disconnect();
                return Ok(true);
            }
        }
    }

    fn pushed(
        &self,
        over: &Arc<Notify>,
    ) -> impl Fn(PushInfo) -> Result<(), SendError> + Send + Sync + 'static {
        let (shared, over) = (Arc::clone(&self.shared), Arc::clone(over));
        move |push| {
            match push.kind {
                PushKind::Message => {
                    if let Some(Value::BulkString(payload)) = push.data.get(1) {
                        shared.events.on_message(payload);
                    }
                }
                PushKind::Disconnection => over.notify_one(),
                _ => {}
            }
            Ok(())
        }
    }

    fn set(&self, state: PubSubState) {
        self.state.send_replace(state);
    }
}

/// Interval of the pings.
const BEAT: Duration = Duration::from_secs(1);

/// Time between two readings of the map, which show that the node was removed.
const MAP_INTERVAL: Duration = Duration::from_secs(5);
