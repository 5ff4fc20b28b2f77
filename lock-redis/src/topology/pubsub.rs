use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::SendError;
use redis::{PushInfo, PushKind, ServerError, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::context::{BROKEN, ConnectionContext};
use super::map::Map;
use crate::config::Endpoint;
use crate::error::{Failure, Refusal};
use polylock_core::engine::before;

/// Receives the messages of a cluster through a connection to any of its nodes, since a cluster
/// forwards each message to all of them. It moves to another node when that one fails.
#[derive(Debug)]
pub(super) struct PubSub {
    map: Arc<Map>,
    shared: Arc<ConnectionContext>,
    channel: Arc<str>,
    state: Arc<watch::Sender<State>>,
    has_begun: AtomicBool,
}

#[derive(Clone, Debug)]
enum State {
    /// A subscription is impossible.
    Denied,
    Listening,
    /// Not yet, or not at the moment, and why.
    Searching(Option<Failure>),
}

impl PubSub {
    pub(super) fn new(map: Arc<Map>, shared: Arc<ConnectionContext>) -> Self {
        Self {
            channel: Arc::clone(shared.channel()),
            map,
            shared,
            state: Arc::new(watch::Sender::new(State::Searching(None))),
            has_begun: AtomicBool::new(false),
        }
    }

    pub(super) fn subscribed(&self) -> Option<Arc<str>> {
        let listens = matches!(*self.state.borrow(), State::Listening);
        listens.then(|| Arc::clone(&self.channel))
    }

    pub(super) async fn channel(&self, deadline: Instant) -> Result<Option<Arc<str>>, Failure> {
        if !self.shared.push {
            return Ok(None);
        }
        if !self.has_begun.swap(true, Ordering::SeqCst) {
            let search = Search {
                map: Arc::downgrade(&self.map),
                shared: Arc::clone(&self.shared),
                channel: Arc::clone(&self.channel),
                state: Arc::downgrade(&self.state),
            };
            self.shared.engine.spawn_service(search.run());
        }
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, State::Searching(None)));
        let late = || Failure::silent(&"the cluster".into(), self.shared.timeout, false);
        match before(deadline, settled).await {
            Some(Ok(state)) => match &*state {
                State::Denied => Ok(None),
                State::Listening => Ok(Some(Arc::clone(&self.channel))),
                State::Searching(why) => Err(why.clone().unwrap_or_else(late)),
            },
            None | Some(Err(_)) => Err(late()),
        }
    }
}

/// Subscribes at one node, and at another one when it fails, for the life of the client.
struct Search {
    map: Weak<Map>,
    shared: Arc<ConnectionContext>,
    channel: Arc<str>,
    state: Weak<watch::Sender<State>>,
}

impl Search {
    async fn run(self) {
        let mut turn = 0_usize;
        while let Some(map) = self.map.upgrade() {
            let candidates = map.candidates();
            let endpoint = candidates.get(turn % candidates.len().max(1)).cloned();
            turn = turn.wrapping_add(1);
            drop(map);
            let Some(endpoint) = endpoint else { return };
            match self.listen(&endpoint).await {
                Ok(State::Denied) => {
                    self.set(State::Denied);
                    return;
                }
                Ok(_) => self.set(State::Searching(None)),
                Err(failure) => {
                    // Callers need not wait for the whole round.
                    if turn.is_multiple_of(candidates.len()) {
                        self.set(State::Searching(Some(failure)));
                    }
                }
            }
            sleep(self.shared.pause()).await;
        }
    }

    /// Listens to one node until it fails.
    async fn listen(&self, endpoint: &Endpoint) -> Result<State, Failure> {
        let Some(map) = self.map.upgrade() else {
            return Ok(State::Denied);
        };
        let connector = map.connectors().to(endpoint)?;
        drop(map);
        let over = Arc::new(Notify::new());
        let within = self.shared.connect_timeout;
        let silent = || Failure::silent(&connector.server, within, false);
        let opened = timeout(within, connector.open(self.pushed(&over))).await;
        let (mut connection, pushes) = opened.map_err(|_| silent())??;
        if !pushes {
            self.shared
                .warn_of_silence(&connector.server, "RESP2 cannot push");
            return Ok(State::Denied);
        }
        let channels = [&*self.channel, BROKEN];
        let subscribed = timeout(within, connection.subscribe(&channels)).await;
        if let Err(error) = subscribed.map_err(|_| silent())? {
            return match ServerError::try_from(error) {
                Ok(reply) if Refusal::of(&reply) == Refusal::NoPerm => {
                    let why = "the ACL denies SUBSCRIBE or the channel";
                    self.shared.warn_of_silence(&connector.server, why);
                    Ok(State::Denied)
                }
                Ok(reply) => Err(Failure::refused(&connector.server, reply)),
                Err(error) => Err(Failure::unconnected(&connector.server, error)),
            };
        }
        self.set(State::Listening);
        loop {
            let broke = timeout(BEAT, over.notified()).await.is_ok();
            if self.state.strong_count() == 0 {
                return Ok(State::Denied);
            }
            // A node that is stopped keeps its connections.
            let ping = redis::cmd("PING");
            let alive = async {
                let answer = connection.send_packed_command(&ping);
                matches!(timeout(within, answer).await, Ok(Ok(_)))
            };
            if broke || !alive.await {
                // In this order: the receivers of the event ask for the channel.
                self.set(State::Searching(None));
                self.shared.events.on_disconnect();
                return Ok(State::Listening);
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

    fn set(&self, state: State) {
        if let Some(place) = self.state.upgrade() {
            place.send_replace(state);
        }
    }
}

/// How often the node is asked whether it is there.
const BEAT: Duration = Duration::from_secs(1);
