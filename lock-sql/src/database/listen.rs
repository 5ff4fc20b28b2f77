//! Notifications of locks that other processes release or break.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::LockKey;
use polylock_core::engine::{Engine, Moment, Mutex};
use sha2::{Digest as _, Sha256};
use sqlx::Connection as _;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::dialect::postgres::lease::CHANNEL;
use crate::error::SqlFailure;
use crate::on_drop::OnDrop;
use crate::pool::Pool;
use crate::store::LocalLeases;
use crate::wire::{ConnectTarget, Sql, SqlValue, hex, postgres};

/// The connection of the process that listens for all waiters and holders. It is open while there is a
/// waiter, or a lease is held for more than a moment.
///
/// A notification is a hint: the database decides about a lock, and waiters also poll. A message to
/// itself tests whether notifications arrive: a pooler in the path accepts the LISTEN and forwards
/// nothing.
pub(super) struct Listener {
    engine: Engine,
    target: Arc<ConnectTarget>,
    pool: Arc<Pool>,
    local: Arc<LocalLeases>,
    /// Wakes the task when a waiter needs the connection at once.
    attended: Notify,
    table: String,
    is_receiving: AtomicBool,
    /// Whether the last attempt to listen has failed.
    has_failed: AtomicBool,
    notify: Arc<Sql>,
    state: Mutex<ListenerState>,
}

#[derive(Default)]
struct ListenerState {
    topics: HashMap<String, Topic>,
    last: Option<Moment>,
    is_running: bool,
}

struct Topic {
    key: LockKey,
    attended: Moment,
    /// When the last request for notifications was sent that the database has executed.
    requested: Option<Moment>,
}

/// The payload for the waiters of a lock: only clients that know the key can match it.
pub(super) fn topic(table: &str, key: &LockKey) -> String {
    let mut hash = Sha256::new();
    hash.update(table.as_bytes());
    // No table name contains this byte.
    hash.update([0]);
    hash.update(key.as_bytes());
    hex(&hash.finalize()[..8])
}

impl Listener {
    pub(super) fn new(
        engine: &Engine,
        target: &Arc<ConnectTarget>,
        pool: &Arc<Pool>,
        local: &Arc<LocalLeases>,
        table: &str,
    ) -> Arc<Self> {
        let notify = format!("SELECT pg_notify('{CHANNEL}', convert_from({{1}}, 'UTF8'))");
        Arc::new(Self {
            engine: engine.clone(),
            target: Arc::clone(target),
            pool: Arc::clone(pool),
            local: Arc::clone(local),
            attended: Notify::new(),
            table: table.to_owned(),
            is_receiving: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            notify: Sql::prepared(notify),
            state: Mutex::default(),
        })
    }

    pub(super) fn is_receiving(&self) -> bool {
        self.is_receiving.load(Ordering::Acquire)
    }

    /// Whether waiters have to do without messages: behind a pooler, and while no connection can listen.
    pub(super) fn is_out_of_use(&self) -> bool {
        self.target.is_pooled() || self.has_failed.load(Ordering::Acquire)
    }

    /// Registers a waiter. Returns whether it must request a notification from the database: messages
    /// arrive, and the last request is not recent.
    pub(super) fn attend(self: &Arc<Self>, key: &LockKey) -> bool {
        if self.target.is_pooled() {
            // Behind a pooler no message ever arrives.
            return false;
        }
        let now = self.engine.now();
        let is_requested = {
            let mut state = self.state.lock();
            state.last = Some(now);
            let topic = state.topics.entry(topic(&self.table, key));
            let topic = topic.or_insert_with(|| Topic {
                key: key.clone(),
                attended: now,
                requested: None,
            });
            topic.attended = now;
            topic
                .requested
                .is_some_and(|at| now.since(at) < REQUEST_INTERVAL)
        };
        self.attended.notify_one();
        self.start();
        self.is_receiving() && !is_requested
    }

    /// The database sends a notification of a release for a while; the request was sent at `sent`.
    pub(super) fn note_requested(&self, key: &LockKey, sent: Moment) {
        let topic = topic(&self.table, key);
        if let Some(topic) = self.state.lock().topics.get_mut(&topic) {
            topic.requested = Some(sent);
        }
    }

    /// Runs the task, for a waiter or for a holder; short holds open no connection.
    pub(super) fn start(self: &Arc<Self>) {
        if self.target.is_pooled() {
            return;
        }
        let is_running = std::mem::replace(&mut self.state.lock().is_running, true);
        if !is_running {
            let running = RunningListener {
                listener: Arc::clone(self),
                has_stopped: false,
            };
            self.engine.spawn_service(running.run());
        }
    }

    /// Notifies the holders of a broken lock, if they listen.
    pub(super) async fn notify_broken(&self, key: &LockKey) {
        let message = format!("{BROKEN}{}", topic(&self.table, key));
        let values = vec![SqlValue::from(message)];
        if let Err(failure) = self.pool.run(&self.notify, values).await {
            tracing::debug!(cause = %failure.cause, "holders are not notified that a lock is broken");
        }
    }

    /// Wakes the waiters that a message is for, or makes holders renew at once.
    fn dispatch(&self, message: &str) {
        if let Some(broken) = message.strip_prefix(BROKEN) {
            let is_it = |key: &LockKey| topic(&self.table, key) == broken;
            return self.local.held.check(is_it);
        }
        let key = {
            let state = self.state.lock();
            state.topics.get(message).map(|topic| topic.key.clone())
        };
        if let Some(key) = key {
            self.local.waiters.wake(&key);
        }
    }

    fn stop_receiving(&self) {
        self.is_receiving.store(false, Ordering::Release);
        // The next connection may lead to a server without the requests.
        let mut state = self.state.lock();
        let topics = state.topics.values_mut();
        topics.for_each(|topic| topic.requested = None);
        drop(state);
        self.local.waiters.wake_all();
    }

    /// Forgets topics without waiters; returns whether there were waiters or leases lately.
    fn is_wanted(&self, state: &mut ListenerState) -> bool {
        let now = self.engine.now();
        let recent = |since: Moment| now.since(since) < IDLE;
        state.topics.retain(|_, topic| recent(topic.attended));
        if self.local.held.is_held_for(LISTEN_DELAY) {
            state.last = Some(now);
        }
        state.last.is_some_and(recent)
    }

    /// Whether the task ends, because there is no waiter and no lease. In one step: one that comes later
    /// finds no task, and starts another.
    fn stops(&self) -> bool {
        let mut state = self.state.lock();
        let stops = !self.is_wanted(&mut state) && self.local.held.is_empty();
        state.is_running = !stops;
        stops
    }

    /// Listens until the connection breaks, or is no longer needed.
    async fn listen(&self) -> Result<(), SqlFailure> {
        let opened = timeout(CONNECT_TIMEOUT, self.open()).await;
        let mut listener = opened.map_err(|_| late())??;
        // The clients that rely on notifications learn that none come any more.
        let _receiving = OnDrop(|| self.stop_receiving());
        self.is_receiving.store(true, Ordering::Release);
        self.has_failed.store(false, Ordering::Release);
        while self.is_wanted(&mut self.state.lock()) {
            match timeout(PING_INTERVAL, listener.try_recv()).await {
                Ok(Ok(Some(message))) => self.dispatch(message.payload()),
                Ok(Ok(None)) => return Err(late()),
                Ok(Err(error)) => return Err(of(error)),
                Err(_) => ping(&mut listener).await?,
            }
        }
        Ok(())
    }

    /// Opens a connection that receives notifications of others.
    async fn open(&self) -> Result<PgListener, SqlFailure> {
        let options = postgres::options(&self.target).await;
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(CONNECT_TIMEOUT)
            .connect_lazy_with(options.map_err(SqlFailure::of_opening)?);
        let mut listener = PgListener::connect_with(&pool).await.map_err(of)?;
        // Reconnects here, to notify the users of the connection.
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await.map_err(of)?;
        let greeting = self.engine.lease_id().to_hex();
        let values = vec![SqlValue::from(greeting.as_str())];
        self.pool.run(&self.notify, values).await?;
        while let Some(message) = listener.try_recv().await.map_err(of)? {
            if message.payload() == greeting {
                return Ok(listener);
            }
            self.dispatch(message.payload());
        }
        Err(late())
    }
}

/// The listening task; it ends with its runtime, and the next waiter starts another.
struct RunningListener {
    listener: Arc<Listener>,
    /// Whether another task may run by now.
    has_stopped: bool,
}

impl RunningListener {
    async fn run(mut self) {
        let here = Arc::clone(&self.listener);
        let mut backoff = MIN_BACKOFF;
        while !here.stops() {
            if !here.is_wanted(&mut here.state.lock()) {
                drop(timeout(LISTEN_DELAY, here.attended.notified()).await);
                continue;
            }
            match here.listen().await {
                Ok(()) => backoff = MIN_BACKOFF,
                Err(failure) => {
                    here.has_failed.store(true, Ordering::Release);
                    tracing::debug!(cause = %failure.cause, "no notifications arrive, and waiters poll");
                    sleep(here.engine.jitter(backoff / 2, backoff)).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
            }
        }
        self.has_stopped = true;
    }
}

async fn ping(listener: &mut PgListener) -> Result<(), SqlFailure> {
    use sqlx::Acquire as _;

    let ping = async { listener.acquire().await?.ping().await };
    let pinged = timeout(CONNECT_TIMEOUT, ping).await;
    pinged.map_err(|_| late())?.map_err(of)
}

impl Drop for RunningListener {
    fn drop(&mut self) {
        if !self.has_stopped {
            self.listener.state.lock().is_running = false;
        }
    }
}

fn of(error: sqlx::Error) -> SqlFailure {
    SqlFailure::of_opening(postgres::db_error(error))
}

fn late() -> SqlFailure {
    of(sqlx::Error::PoolTimedOut)
}

/// How long the connection is kept after the last waiter.
const IDLE: Duration = Duration::from_secs(60);

/// For how long a process relies on its last request for the notifications of a lock. The database keeps it for
/// 1.25 s longer at least; a waiter reads the rows and then sleeps for a second at most.
const REQUEST_INTERVAL: Duration = Duration::from_millis(250);

/// How long a lease is held before this process listens for it.
const LISTEN_DELAY: Duration = Duration::from_secs(1);

/// Prefix of the topic in messages to holders. Clients that do not know it know no such topic.
const BROKEN: &str = "broken/";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// After this time without a message the connection is asked whether it is alive.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Backoff before it is opened again.
const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use polylock_core::LockUrl;

    use super::*;
    use crate::config::SqlConfig;

    /// A waiter that finds the task running relies on it.
    #[tokio::test]
    async fn a_task_that_is_found_running_does_not_stop() {
        let engine = Engine::of_this_process("test");
        let url = LockUrl::parse("postgres://a:b@127.0.0.1/c?mode=lease").unwrap();
        let target = ConnectTarget::of(SqlConfig::from_url(&url).unwrap()).unwrap();
        let target = Arc::new(target);
        let pool = Pool::new(&engine, &target, 1, LISTEN_DELAY);
        let listener = Listener::new(&engine, &target, &pool, &Arc::default(), "t");
        let is_running = |listener: &Listener| listener.state.lock().is_running;
        listener.state.lock().is_running = true;
        assert!(listener.stops());
        assert!(!is_running(&listener), "the next waiter starts another");
        listener.state.lock().is_running = true;
        // Nothing is started here.
        assert!(!listener.attend(&LockKey::new("k").unwrap()));
        assert!(!listener.stops());
        assert!(is_running(&listener));
    }
}
