use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::connector::Connector;
use super::context::{ConnectionContext, SubscriptionState};
use super::driver::SocketState;
use super::on_demand::OnDemand;
use super::unanswered::Unanswered;
use crate::error::RedisFailure;
use polylock_core::engine::before;

/// One connection to one server, for the tasks of one runtime.
///
/// It is opened on demand, and replaced after it broke or timed out.
pub(super) struct RedisConnection {
    connector: Arc<Connector>,
    shared: Arc<ConnectionContext>,
    runtime: Handle,
    /// Whether it may receive messages; one connection of a runtime is enough.
    may_subscribe: bool,
    socket: Arc<OnDemand<RedisSocket>>,
    /// Serializes subscribing on a connection that is open.
    subscribing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct RedisSocket {
    redis: MultiplexedConnection,
    pushes: bool,
    subscription: SubscriptionState,
    life: Arc<SocketState>,
}

impl RedisConnection {
    pub(super) fn new(
        connector: Arc<Connector>,
        shared: Arc<ConnectionContext>,
        runtime: Handle,
        may_subscribe: bool,
    ) -> Self {
        let late = RedisFailure::silent(&connector.server, shared.timeout, false);
        Self {
            socket: OnDemand::new(&shared, late),
            connector,
            shared,
            runtime,
            may_subscribe,
            subscribing: tokio::sync::Mutex::new(()),
        }
    }

    pub(super) fn server(&self) -> &Arc<str> {
        &self.connector.server
    }

    /// Connects, unless there is a connection.
    pub(super) async fn ready(self: &Arc<Self>, deadline: Instant) -> Result<(), RedisFailure> {
        self.socket(deadline).await.map(drop)
    }

    /// Sends one request and gives its answer, or the error in it.
    pub(super) async fn run(
        self: &Arc<Self>,
        request: &Cmd,
        deadline: Instant,
        unanswered: Option<&Unanswered>,
    ) -> Result<Value, RedisFailure> {
        let mut pending = PendingReply::begin(self, self.socket(deadline).await?, unanswered);
        let answer = {
            // Pinned here: a future that is passed by value is stored twice.
            let answer = pin!(pending.socket.redis.send_packed_command(request));
            before(deadline, answer).await
        };
        match pending.end(answer)? {
            Value::ServerError(error) => Err(RedisFailure::refused(&self.connector.server, error)),
            value => Ok(value),
        }
    }

    /// Sends requests in one go and gives their answers, errors among them.
    pub(super) async fn run_all(
        self: &Arc<Self>,
        requests: &Pipeline,
        deadline: Instant,
        unanswered: Option<&Unanswered>,
    ) -> Result<Vec<Value>, RedisFailure> {
        let mut pending = PendingReply::begin(self, self.socket(deadline).await?, unanswered);
        let answers = {
            let redis = &mut pending.socket.redis;
            let answers = pin!(redis.send_packed_commands(requests, 0, requests.len()));
            before(deadline, answers).await
        };
        pending.end(answers)
    }

    /// Subscribes to the channel of the client; false if that is impossible on this connection.
    pub(super) async fn listen(self: &Arc<Self>, deadline: Instant) -> Result<bool, RedisFailure> {
        if self.is_subscribed() {
            return Ok(true);
        }
        loop {
            self.socket(deadline).await?;
            let turn = before(deadline, self.subscribing.lock()).await;
            let _turn = turn.ok_or_else(|| self.silent(false))?;
            let Some(mut socket) = self.socket.present() else {
                continue;
            };
            if socket.subscription == SubscriptionState::NotRequested {
                let subscribed = before(deadline, self.subscribe(&mut socket)).await;
                let subscribed = subscribed.unwrap_or_else(|| Err(self.silent(false)));
                socket.subscription = subscribed.inspect_err(|_| self.close(&socket.life))?;
                let same = |now: &RedisSocket| Arc::ptr_eq(&now.life, &socket.life);
                if !self
                    .socket
                    .change(same, |now| now.subscription = socket.subscription)
                {
                    continue;
                }
            }
            return Ok(socket.subscription == SubscriptionState::Subscribed);
        }
    }

    /// Whether requests can be sent without connecting first.
    pub(super) fn is_open(&self) -> bool {
        self.socket
            .is(|now| !now.life.is_over.load(Ordering::Relaxed))
    }

    /// Whether the channel is subscribed already.
    pub(super) fn is_subscribed(&self) -> bool {
        let subscribed = |now: &RedisSocket| now.subscription == SubscriptionState::Subscribed;
        self.socket.is(subscribed)
    }

    /// Closes the connection, whichever it is.
    pub(super) fn hang_up(&self) {
        self.close_if(|_| true);
    }

    async fn socket(self: &Arc<Self>, deadline: Instant) -> Result<RedisSocket, RedisFailure> {
        if let Some(socket) = self.socket.present() {
            if !socket.life.is_over.load(Ordering::Relaxed) {
                return Ok(socket);
            }
            self.close(&socket.life);
        }
        // Boxed: rarely needed, and would otherwise enlarge the future of every request.
        Box::pin(self.new_socket(deadline)).await
    }

    async fn new_socket(self: &Arc<Self>, deadline: Instant) -> Result<RedisSocket, RedisFailure> {
        let make = || Arc::clone(self).connect();
        let spawn = |task| {
            let connection = Arc::clone(self);
            drop(self.runtime.spawn(async move {
                task.await;
                // It may have ended before it was stored, and nobody may use it for long.
                connection.close_if(|now| now.life.is_over.load(Ordering::SeqCst));
            }));
        };
        self.socket.get(spawn, deadline, make).await
    }

    async fn connect(self: Arc<Self>) -> Result<RedisSocket, RedisFailure> {
        let within = self.shared.connect_timeout;
        let opened = before(Instant::now() + within, self.open()).await;
        opened.unwrap_or_else(|| Err(RedisFailure::silent(&self.connector.server, within, false)))
    }

    async fn open(self: &Arc<Self>) -> Result<RedisSocket, RedisFailure> {
        let life = Arc::<SocketState>::default();
        let pushed = self.pushed(Arc::downgrade(&life));
        let (redis, pushes) = self.connector.open(pushed, Some(&life)).await?;
        let mut socket = RedisSocket {
            redis,
            pushes,
            subscription: SubscriptionState::NotRequested,
            life,
        };
        // First, because waiters may already rely on the channel.
        if self.is_subscriber() {
            socket.subscription = self.subscribe(&mut socket).await?;
        }
        Ok(socket)
    }

    /// Handles pushed messages, on the task that reads the socket.
    fn pushed(
        self: &Arc<Self>,
        life: Weak<SocketState>,
    ) -> impl Fn(PushInfo) -> Result<(), SendError> + Send + Sync + 'static {
        let connection: Weak<Self> = Arc::downgrade(self);
        move |push| {
            let (Some(connection), Some(life)) = (connection.upgrade(), life.upgrade()) else {
                return Err(SendError);
            };
            match push.kind {
                // Ignores messages on a socket that was closed here: its server may no longer be the
                // master.
                PushKind::Message if life.is_over.load(Ordering::SeqCst) => {}
                PushKind::Message => {
                    if let Some(Value::BulkString(payload)) = push.data.get(1) {
                        connection.shared.events.on_message(payload);
                    }
                }
                PushKind::Disconnection => {
                    // In this order: the connection may not be stored yet.
                    life.is_over.store(true, Ordering::SeqCst);
                    connection.close(&life);
                }
                _ => {}
            }
            Ok(())
        }
    }

    async fn subscribe(&self, socket: &mut RedisSocket) -> Result<SubscriptionState, RedisFailure> {
        let RedisSocket { redis, pushes, .. } = socket;
        let (connector, pushes) = (&self.connector, *pushes);
        self.shared.subscribe(connector, redis, pushes).await
    }

    /// Whether it subscribes when it is made, as that of the runtime that listens does.
    fn is_subscriber(&self) -> bool {
        self.may_subscribe && self.shared.subscriber.get() == Some(&self.runtime.id())
    }

    /// Closes this socket; a stale error does not close a newer one.
    fn close(&self, life: &Arc<SocketState>) {
        self.close_if(|now| Arc::ptr_eq(&now.life, life));
    }

    fn close_if(&self, which: impl FnOnce(&RedisSocket) -> bool) {
        let Some(socket) = self.socket.discard(which) else {
            return;
        };
        socket.life.is_over.store(true, Ordering::SeqCst);
        if socket.subscription == SubscriptionState::Subscribed {
            self.shared.events.on_disconnect();
        }
        // A user that may subscribe but not publish receives messages about broken locks. A connection may
        // end while it subscribes.
        if socket.pushes
            && (socket.subscription != SubscriptionState::NotRequested || self.is_subscriber())
        {
            self.shared.events.on_gap();
        }
    }

    pub(super) fn silent(&self, sent: bool) -> RedisFailure {
        RedisFailure::silent(&self.connector.server, self.shared.timeout, sent)
    }
}

/// A request in flight.
///
/// Without a reply, its connection is kept for requests that must arrive behind it. If a caller gives up
/// early, as a renewal does long before the timeout, the next caller gets no dead connection. A
/// connection on which other requests got replies meanwhile is not dead.
struct PendingReply<'a> {
    connection: &'a RedisConnection,
    socket: RedisSocket,
    unanswered: Option<&'a Unanswered>,
    /// Of all requests on this socket, before this one.
    answers: u64,
    since: Instant,
}

/// After this silence, another connection is tried. Shorter than the 75 ms after which a renewal of the
/// shortest lease gives up: its retries need a connection that replies.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_millis(60);

impl<'a> PendingReply<'a> {
    fn begin(
        connection: &'a RedisConnection,
        socket: RedisSocket,
        unanswered: Option<&'a Unanswered>,
    ) -> Self {
        socket.life.under_way.fetch_add(1, Ordering::Relaxed);
        Self {
            connection,
            answers: socket.life.answers.load(Ordering::Relaxed),
            socket,
            unanswered,
            since: Instant::now(),
        }
    }

    /// Handles the reply; a connection without one is not used again.
    fn end<T>(mut self, answer: Option<Result<T, RedisError>>) -> Result<T, RedisFailure> {
        if answer.is_some() {
            self.unanswered = None;
            self.socket.life.answers.fetch_add(1, Ordering::Relaxed);
        }
        let failure = match answer {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) => RedisFailure::broken(&self.connection.connector.server, error),
            None => self.connection.silent(true),
        };
        self.connection.close(&self.socket.life);
        Err(failure)
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        let life = &self.socket.life;
        life.under_way.fetch_sub(1, Ordering::Relaxed);
        let is_silent = life.answers.load(Ordering::Relaxed) == self.answers;
        if is_silent && self.since.elapsed() >= SILENCE_LIMIT {
            self.connection.close(life);
        }
        if let Some(unanswered) = self.unanswered {
            unanswered.keep(self.socket.redis.clone(), Arc::clone(life));
        }
    }
}
