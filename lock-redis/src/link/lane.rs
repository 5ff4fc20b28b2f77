use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::dial::Dial;
use super::nap::before;
use super::node::Shared;
use crate::error::{Cause, Failure, Refusal};

/// One connection to one server, for the tasks of one runtime.
///
/// It is made when it is needed, by a task of its runtime that no caller can cancel, and replaced
/// after it broke or did not answer in time.
pub(super) struct Lane {
    dial: Arc<Dial>,
    shared: Arc<Shared>,
    runtime: Handle,
    channel: Arc<str>,
    /// Whether a connection subscribes to the channel before anything else is sent on it.
    listens: AtomicBool,
    state: watch::Sender<State>,
    /// Serialises subscribing on a connection that is open.
    subscribing: tokio::sync::Mutex<()>,
    made: AtomicU64,
    /// A task that ends with the runtime.
    pub(super) witness: std::sync::OnceLock<AbortHandle>,
}

#[derive(Clone, Debug)]
enum State {
    Closed,
    /// The last attempt failed, and the next one waits for its turn.
    Failed(Failure, Instant),
    Open(Connection),
    Opening,
}

#[derive(Clone, Debug)]
struct Connection {
    redis: MultiplexedConnection,
    /// Which connection of the lane this is, so that nobody closes its successor.
    number: u64,
    pushes: bool,
    hearing: Hearing,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Hearing {
    Denied,
    NotAsked,
    Subscribed,
}

impl Lane {
    pub(super) fn new(
        dial: Arc<Dial>,
        shared: Arc<Shared>,
        runtime: Handle,
        channel: Arc<str>,
    ) -> Self {
        Self {
            dial,
            shared,
            runtime,
            channel,
            listens: AtomicBool::new(false),
            state: watch::Sender::new(State::Closed),
            subscribing: tokio::sync::Mutex::new(()),
            made: AtomicU64::new(0),
            witness: std::sync::OnceLock::new(),
        }
    }

    pub(super) fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    /// Connects, unless there is a connection.
    pub(super) async fn ready(self: &Arc<Self>, deadline: Instant) -> Result<(), Failure> {
        self.connection(deadline).await.map(drop)
    }

    /// Sends one request and gives its answer, or the error in it.
    pub(super) async fn run(
        self: &Arc<Self>,
        request: &Cmd,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let mut connection = self.connection(deadline).await?;
        let answer = before(deadline, connection.redis.send_packed_command(request)).await;
        match self.received(connection.number, answer)? {
            Value::ServerError(error) => Err(Failure::refused(&self.dial.server, error)),
            value => Ok(value),
        }
    }

    /// Sends requests in one go and gives their answers, errors among them.
    pub(super) async fn run_all(
        self: &Arc<Self>,
        requests: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let mut connection = self.connection(deadline).await?;
        let count = requests.len();
        let answers = connection.redis.send_packed_commands(requests, 0, count);
        let answers = before(deadline, answers).await;
        self.received(connection.number, answers)
    }

    /// Subscribes to the channel of the lane; false if that is impossible here.
    pub(super) async fn listen(self: &Arc<Self>, deadline: Instant) -> Result<bool, Failure> {
        if let State::Open(connection) = &*self.state.borrow() {
            if connection.hearing != Hearing::NotAsked {
                return Ok(connection.hearing == Hearing::Subscribed);
            }
        }
        self.listens.store(true, Ordering::Relaxed);
        loop {
            let mut connection = self.connection(deadline).await?;
            let turn = before(deadline, self.subscribing.lock()).await;
            let _turn = turn.ok_or_else(|| self.silent(false))?;
            if let State::Open(now) = &*self.state.borrow() {
                if now.hearing != Hearing::NotAsked {
                    return Ok(now.hearing == Hearing::Subscribed);
                }
                connection = now.clone();
            }
            let hearing = before(deadline, self.subscribe(&mut connection)).await;
            let hearing = match hearing {
                Some(Ok(hearing)) => hearing,
                Some(Err(failure)) => {
                    self.close(connection.number);
                    return Err(failure);
                }
                None => {
                    self.close(connection.number);
                    return Err(self.silent(false));
                }
            };
            let number = connection.number;
            let kept = self.state.send_if_modified(|state| match state {
                State::Open(now) if now.number == number => {
                    now.hearing = hearing;
                    true
                }
                _ => false,
            });
            if kept {
                return Ok(hearing == Hearing::Subscribed);
            }
        }
    }

    /// Whether the channel of the lane is heard already.
    pub(super) fn is_heard(&self) -> bool {
        matches!(&*self.state.borrow(), State::Open(connection) if connection.hearing == Hearing::Subscribed)
    }

    /// Closes the connection, whichever it is.
    pub(super) fn hang_up(&self) {
        let number = match &*self.state.borrow() {
            State::Open(connection) => connection.number,
            State::Closed | State::Failed(..) | State::Opening => return,
        };
        self.close(number);
    }

    async fn connection(self: &Arc<Self>, deadline: Instant) -> Result<Connection, Failure> {
        if let State::Open(connection) = &*self.state.borrow() {
            return Ok(connection.clone());
        }
        self.opened(deadline).await
    }

    async fn opened(self: &Arc<Self>, deadline: Instant) -> Result<Connection, Failure> {
        let mut state = self.state.subscribe();
        self.start();
        let settled = state.wait_for(|state| !matches!(state, State::Opening));
        match before(deadline, settled).await {
            None => Err(self.silent(false)),
            Some(Err(_)) => Err(self.gone()),
            Some(Ok(state)) => match &*state {
                State::Open(connection) => Ok(connection.clone()),
                State::Failed(failure, _) => Err(failure.clone()),
                State::Closed | State::Opening => Err(self.gone()),
            },
        }
    }

    /// Begins to connect, unless somebody has.
    fn start(self: &Arc<Self>) {
        let mut not_before = None;
        let begun = self.state.send_if_modified(|state| {
            match state {
                State::Closed => {}
                State::Failed(_, until) => not_before = Some(*until),
                State::Open(_) | State::Opening => return false,
            }
            *state = State::Opening;
            true
        });
        if begun {
            let opening = Opening(Some(Arc::clone(self)));
            drop(self.runtime.spawn(async move {
                if let Some(until) = not_before {
                    tokio::time::sleep_until(until).await;
                }
                opening.run().await;
            }));
        }
    }

    async fn open(self: &Arc<Self>) -> Result<(Connection, Arc<AtomicBool>), Failure> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let over = Arc::new(AtomicBool::new(false));
        let pushed = self.pushed(number, Arc::clone(&over));
        let (redis, pushes) = self.dial.open(pushed).await?;
        let mut connection = Connection {
            redis,
            number,
            pushes,
            hearing: Hearing::NotAsked,
        };
        if self.listens.load(Ordering::Relaxed) {
            connection.hearing = self.subscribe(&mut connection).await?;
        }
        Ok((connection, over))
    }

    /// What the connection does with messages, on the task that reads its socket.
    fn pushed(
        self: &Arc<Self>,
        number: u64,
        over: Arc<AtomicBool>,
    ) -> impl Fn(PushInfo) -> Result<(), redis::aio::SendError> + Send + Sync + 'static {
        let lane: Weak<Self> = Arc::downgrade(self);
        move |push| {
            match push.kind {
                PushKind::Message => {
                    if let (Some(lane), Some(Value::BulkString(payload))) =
                        (lane.upgrade(), push.data.get(1))
                    {
                        lane.shared.ears.heard(payload);
                    }
                }
                PushKind::Disconnection => {
                    over.store(true, Ordering::SeqCst);
                    if let Some(lane) = lane.upgrade() {
                        lane.close(number);
                    }
                }
                _ => {}
            }
            Ok(())
        }
    }

    async fn subscribe(&self, connection: &mut Connection) -> Result<Hearing, Failure> {
        if !connection.pushes {
            self.shared
                .warn_of_silence(&self.dial.server, "it speaks no RESP3");
            return Ok(Hearing::Denied);
        }
        let server = &self.dial.server;
        let Err(error) = connection.redis.subscribe(&*self.channel).await else {
            return Ok(Hearing::Subscribed);
        };
        match redis::ServerError::try_from(error) {
            Ok(reply) if Refusal::of(&reply) == Refusal::NoPerm => {
                self.shared
                    .warn_of_silence(server, "its ACL denies SUBSCRIBE");
                Ok(Hearing::Denied)
            }
            Ok(reply) => Err(Failure::refused(server, reply)),
            Err(error) => Err(Failure::unconnected(server, error)),
        }
    }

    /// Takes an answer; a connection without one is not used again.
    fn received<T>(
        &self,
        number: u64,
        answer: Option<Result<T, RedisError>>,
    ) -> Result<T, Failure> {
        let failure = match answer {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) => Failure::broken(&self.dial.server, error),
            None => self.silent(true),
        };
        self.close(number);
        Err(failure)
    }

    fn close(&self, number: u64) {
        let mut heard = false;
        self.state.send_if_modified(|state| match state {
            State::Open(connection) if connection.number == number => {
                heard = connection.hearing == Hearing::Subscribed;
                *state = State::Closed;
                true
            }
            _ => false,
        });
        if heard {
            self.shared.ears.deaf();
        }
    }

    fn silent(&self, sent: bool) -> Failure {
        Failure::silent(&self.dial.server, self.shared.timeout, sent)
    }

    fn gone(&self) -> Failure {
        let server = Arc::clone(&self.dial.server);
        Cause::Runtime { server }.into()
    }
}

/// An attempt to connect. Says how it ended even if its runtime drops it.
struct Opening(Option<Arc<Lane>>);

impl Opening {
    async fn run(mut self) {
        let Some(lane) = self.0.clone() else { return };
        let within = lane.shared.connect_timeout;
        let opened = before(Instant::now() + within, lane.open()).await;
        let server = &lane.dial.server;
        let opened = opened.unwrap_or_else(|| Err(Failure::silent(server, within, false)));
        self.0 = None;
        match opened {
            Ok((connection, over)) => {
                let number = connection.number;
                lane.state.send_replace(State::Open(connection));
                // The connection may have ended before anybody could close it.
                if over.load(Ordering::SeqCst) {
                    lane.close(number);
                }
            }
            Err(failure) => {
                let until = Instant::now() + lane.shared.pause();
                lane.state.send_replace(State::Failed(failure, until));
            }
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(lane) = self.0.take() {
            lane.state.send_replace(State::Closed);
        }
    }
}

/// Calls `over` when `runtime` shuts down.
pub(super) fn witness(runtime: &Handle, over: impl FnOnce() + Send + 'static) -> AbortHandle {
    struct Over<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Over<F> {
        fn drop(&mut self) {
            if let Some(over) = self.0.take() {
                over();
            }
        }
    }
    let over = Over(Some(over));
    let task = async move {
        let _over = over;
        pending::<()>().await;
    };
    runtime.spawn(task).abort_handle()
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(witness) = self.witness.get() {
            witness.abort();
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("server", &self.dial.server)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}
