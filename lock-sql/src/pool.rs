//! Statements on a limited number of connections.
//!
//! Each statement runs in a task of the engine, so that a dropped caller never leaves a connection in
//! the middle of one. A statement that has not begun is skipped; others run to their end.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use polylock_core::engine::{Engine, Mutex};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::error::SqlFailure;
use crate::store::LocalLeases;
use crate::wire::{ConnectTarget, ErrorClass, QueryResult, ServerConnection, Sql, SqlValue};

/// Runs statements, each by itself, on at most so many connections.
///
/// Where no connection can be opened, because the server has no room or refuses the login, a statement
/// waits for one that is open.
pub(crate) struct Pool {
    engine: Engine,
    target: Arc<ConnectTarget>,
    timeout: Duration,
    /// One for each connection; statements queue here.
    permits: Semaphore,
    /// The pool that lends its connections, one statement at a time, if none can be opened here.
    lender: Option<Arc<Self>>,
    /// One idle connection stays open while this process holds one of these.
    leases: Option<Arc<LocalLeases>>,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Idle connections with the time of their last statement, the last one last.
    idle: Vec<(ServerConnection, Instant)>,
    /// How many connections statements use, also those of a pool that borrows here.
    in_use: usize,
    /// Statements that wait for one of them, those of a pool that borrows here first.
    waiters: VecDeque<oneshot::Sender<PoolConnection>>,
    /// When a connection was last found to be broken. The server may have closed all of them.
    broke: Option<Instant>,
    closes_idle: bool,
}

impl PoolState {
    /// Removes the connections that are idle for long, or all; returns when the next one is due. The last one stays
    /// while it is needed: a renewal of a lease may be further away than the limit, and find no room at the
    /// server.
    fn expire(
        &mut self,
        now: Instant,
        is_closed: bool,
        is_needed: bool,
    ) -> (Vec<ServerConnection>, Option<Instant>) {
        let is_over =
            |(_, since): &mut (ServerConnection, Instant)| is_closed || now >= *since + IDLE;
        let mut closed: Vec<_> = self.idle.extract_if(.., is_over).collect();
        if is_needed && self.idle.is_empty() && self.in_use == 0 {
            self.idle.extend(closed.pop());
        }
        let due = |(_, since): &(ServerConnection, Instant)| (*since + IDLE).max(now + RECHECK);
        let next = self.idle.iter().map(due).min();
        (closed.into_iter().map(|(raw, _)| raw).collect(), next)
    }
}

/// A connection in use. If this is dropped, the connection returns to its pool; in the middle of a statement,
/// it is closed.
struct PoolConnection {
    pool: Arc<Pool>,
    /// `None` in the middle of a statement, and after one that broke it.
    raw: Option<ServerConnection>,
}

impl PoolConnection {
    /// Whether the server replies; if not, the connection is closed.
    async fn is_alive(&mut self) -> bool {
        // After a restart of the server, a ping fails instead of a statement with an unknown outcome.
        if let Some(mut raw) = self.raw.take() {
            let asked = timeout(PING_TIMEOUT, raw.run(&PING, &[])).await;
            self.raw = asked.is_ok_and(|answer| answer.is_ok()).then_some(raw);
        }
        self.raw.is_some()
    }
}

impl Drop for PoolConnection {
    fn drop(&mut self) {
        self.pool.give_back(self.raw.take());
    }
}

/// A statement or several.
struct PoolJob {
    sql: Arc<Sql>,
    values: Vec<SqlValue>,
    deadline: Instant,
    reply: oneshot::Sender<Result<QueryResult, SqlFailure>>,
}

impl Pool {
    /// `timeout` limits each statement, with its time in the queue and that of opening a connection.
    pub(crate) fn new(
        engine: &Engine,
        target: &Arc<ConnectTarget>,
        size: usize,
        timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self::of(engine, target, size, timeout))
    }

    fn of(engine: &Engine, target: &Arc<ConnectTarget>, size: usize, timeout: Duration) -> Self {
        Self {
            engine: engine.clone(),
            target: Arc::clone(target),
            timeout,
            permits: Semaphore::new(size),
            lender: None,
            leases: None,
            state: Mutex::default(),
        }
    }

    /// The same, with an idle connection that stays open while this process holds leases.
    pub(crate) fn with_leases(
        engine: &Engine,
        target: &Arc<ConnectTarget>,
        size: usize,
        timeout: Duration,
        leases: &Arc<LocalLeases>,
    ) -> Arc<Self> {
        Arc::new(Self {
            leases: Some(Arc::clone(leases)),
            ..Self::of(engine, target, size, timeout)
        })
    }

    /// A pool of urgent statements with connections of its own, which borrows if it can open none.
    pub(crate) fn borrowing(self: &Arc<Self>, size: usize, timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            lender: Some(Arc::clone(self)),
            ..Self::of(&self.engine, &self.target, size, timeout)
        })
    }

    /// Runs a statement or several. One that is prepared is repeated after a conflict with another
    /// transaction.
    pub(crate) async fn run(
        self: &Arc<Self>,
        sql: &Arc<Sql>,
        values: Vec<SqlValue>,
    ) -> Result<QueryResult, SqlFailure> {
        self.run_with(sql, values, |_| ()).await
    }

    /// The same for a statement that acquires no lock and may run twice: its failure never has an unknown outcome.
    /// A connection that was closed while it was idle, as by a restart of the server, costs a repetition on another
    /// one.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        sql: &Arc<Sql>,
        values: Vec<SqlValue>,
    ) -> Result<QueryResult, SqlFailure> {
        let mut asked = self.run(sql, values.clone()).await;
        if asked.as_ref().is_err_and(SqlFailure::is_of_connection) {
            asked = self.run(sql, values).await;
        }
        asked.map_err(|failure| failure.cause.into())
    }

    /// The same as `run`, and passes the result to a function before the caller gets it, even if the caller is
    /// gone: `None` if the statement never began. If the runtime of the engine ends, the function is
    /// dropped without a call.
    pub(crate) async fn run_with(
        self: &Arc<Self>,
        sql: &Arc<Sql>,
        values: Vec<SqlValue>,
        ended: impl FnOnce(Option<&Result<QueryResult, SqlFailure>>) + Send + 'static,
    ) -> Result<QueryResult, SqlFailure> {
        let (reply, answer) = oneshot::channel();
        let job = PoolJob {
            sql: Arc::clone(sql),
            values,
            deadline: Instant::now() + self.timeout,
            reply,
        };
        let pool = Arc::clone(self);
        let serve = async move { pool.serve(job, ended).await };
        let opens = self.state.lock().idle.is_empty();
        if opens {
            // It may request a login from the application, whose code must not run on a caller's thread.
            self.engine.spawn_service(serve);
        } else {
            self.engine.poll_woken(|| self.engine.spawn_inline(serve));
        }
        // Without a reply when the runtime of the engine has ended.
        answer.await.unwrap_or_else(|_| Err(self.silent(true)))
    }

    async fn serve(
        self: &Arc<Self>,
        mut job: PoolJob,
        ended: impl FnOnce(Option<&Result<QueryResult, SqlFailure>>),
    ) {
        let answer = tokio::select! {
            biased;
            permit = timeout_at(job.deadline, self.permits.acquire()) => match permit {
                Ok(_permit) => self.attempt(&job).await,
                // Other requests of this client have the connections: nothing was sent.
                Err(_) => Some(Err(SqlFailure::silent(self.timeout, false))),
            },
            () = job.reply.closed() => None,
        };
        ended(answer.as_ref());
        if let Some(answer) = answer {
            // The caller may be gone.
            drop(job.reply.send(answer));
        }
    }

    /// `None` if the caller is gone before the statement begins.
    async fn attempt(self: &Arc<Self>, job: &PoolJob) -> Option<Result<QueryResult, SqlFailure>> {
        if job.reply.is_closed() {
            return None;
        }
        Some(
            match timeout_at(job.deadline, self.connect(job.deadline)).await {
                // A caller that gave up while a connection was being opened has already undone the request.
                Ok(Ok(_connection)) if job.reply.is_closed() => return None,
                Ok(Ok(connection)) => self.execute(connection, job).await,
                Ok(Err(failure)) => Err(failure),
                Err(_) => Err(self.silent(false)),
            },
        )
    }

    /// Runs a job; the connection is in use until then.
    async fn execute(
        self: &Arc<Self>,
        mut connection: PoolConnection,
        job: &PoolJob,
    ) -> Result<QueryResult, SqlFailure> {
        let Some(mut raw) = connection.raw.take() else {
            return Err(self.silent(false));
        };
        let (mut backoff, began) = (MIN_BACKOFF, Instant::now());
        loop {
            let run = raw.run(&job.sql, &job.values);
            let Ok(done) = timeout_at(job.deadline, run).await else {
                // The connection, which has no reader any more, is closed with this.
                return Err(self.silent(true));
            };
            let mut db_error = match done {
                Ok(answer) => {
                    connection.raw = Some(raw);
                    return Ok(answer);
                }
                Err(db_error) => db_error,
            };
            // The server has our limit, see `settle`, and may be a moment faster.
            if db_error.class == ErrorClass::Cancelled && began.elapsed() + EARLY >= self.timeout {
                let says = format!(
                    "the statement did not end within {:?}, which is polylock's own limit: another transaction may \
                     have locked the table",
                    self.timeout
                );
                db_error.says = Some(says.into());
            }
            let repeats = db_error.class == ErrorClass::Conflict
                && job.sql.is_prepared
                && !job.reply.is_closed();
            if repeats && Instant::now() + backoff < job.deadline {
                sleep(self.engine.jitter(backoff / 2, backoff)).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
                continue;
            }
            match db_error.class.is_the_end() {
                true => connection.pool.state.lock().broke = Some(Instant::now()),
                false => connection.raw = Some(raw),
            }
            return Err(SqlFailure::of_statement(db_error));
        }
    }

    /// The idle connection that was used last, if the server replies on it, or a new one. If none can be
    /// opened, one that is open, by the deadline.
    async fn connect(self: &Arc<Self>, deadline: Instant) -> Result<PoolConnection, SqlFailure> {
        if let Some(connection) = self.idle().await {
            return Ok(connection);
        }
        let failure = match self.open().await {
            Ok(opened) => {
                self.state.lock().in_use += 1;
                return Ok(PoolConnection {
                    pool: Arc::clone(self),
                    raw: Some(opened),
                });
            }
            // A server that did not reply is not there, and its connections may not be either. A pool of the
            // application has no further place while connections are lent.
            Err(failure) if !failure.is_for_want_of_room() => return Err(failure),
            Err(failure) => failure,
        };
        let lender = self.lender.as_ref().unwrap_or(self);
        let lent = timeout_at(deadline, lender.lend(self.lender.is_some())).await;
        lent.ok().flatten().ok_or(failure)
    }

    async fn open(&self) -> Result<ServerConnection, SqlFailure> {
        let opened = ServerConnection::open(&self.target).await;
        let mut opened = opened.map_err(SqlFailure::of_opening)?;
        let settled = opened.settle(self.timeout).await;
        settled.map_err(SqlFailure::of_opening)?;
        Ok(opened)
    }

    /// The idle connection that was used last, if the server replies on it.
    async fn idle(self: &Arc<Self>) -> Option<PoolConnection> {
        let (raw, since, broke) = {
            let mut state = self.state.lock();
            let (raw, since) = state.idle.pop()?;
            state.in_use += 1;
            (raw, since, state.broke)
        };
        let mut connection = PoolConnection {
            pool: Arc::clone(self),
            raw: Some(raw),
        };
        let is_fresh = since.elapsed() < PING_AFTER && broke.is_none_or(|broke| since > broke);
        (is_fresh || connection.is_alive().await).then_some(connection)
    }

    /// A connection that is open: one that is idle, or the next one that returns. `None` if there is none.
    async fn lend(self: &Arc<Self>, is_urgent: bool) -> Option<PoolConnection> {
        loop {
            if let Some(connection) = self.idle().await {
                return Some(connection);
            }
            if let Some(given) = self.next_given(is_urgent)? {
                // Without one, if the last connection has broken.
                return given.await.ok();
            }
        }
    }

    /// Waits for the next connection that returns; `None` if there is none, and nothing to wait for if one
    /// is idle.
    fn next_given(&self, is_urgent: bool) -> Option<Option<oneshot::Receiver<PoolConnection>>> {
        let mut state = self.state.lock();
        if !state.idle.is_empty() {
            return Some(None);
        }
        if state.in_use == 0 {
            return None;
        }
        let (give, given) = oneshot::channel();
        match is_urgent {
            true => state.waiters.push_front(give),
            false => state.waiters.push_back(give),
        }
        Some(Some(given))
    }

    /// Passes a connection that is in order to the next waiter, or keeps it. `None` for one that is closed.
    fn give_back(self: &Arc<Self>, raw: Option<ServerConnection>) {
        let mut state = self.state.lock();
        let Some(raw) = raw else {
            state.in_use -= 1;
            let failed = match state.in_use {
                0 => std::mem::take(&mut state.waiters),
                _ => VecDeque::new(),
            };
            drop(state);
            drop(failed);
            return;
        };
        while let Some(waiter) = state.waiters.pop_front() {
            if !waiter.is_closed() {
                drop(state);
                let pool = Arc::clone(self);
                // If the waiter is gone by now, the connection comes back here.
                drop(waiter.send(PoolConnection {
                    pool,
                    raw: Some(raw),
                }));
                return;
            }
        }
        state.in_use -= 1;
        state.idle.push((raw, Instant::now()));
        let closes_idle = std::mem::replace(&mut state.closes_idle, true);
        // Outside of the mutex: a runtime that ends drops the task at once, and the task locks it.
        drop(state);
        if !closes_idle {
            let closing = ClosesIdle(Arc::downgrade(self));
            self.engine.spawn_service(closing.run());
        }
    }

    fn silent(&self, outcome_unknown: bool) -> SqlFailure {
        SqlFailure {
            cause: self.target.silent(self.timeout),
            outcome_unknown,
        }
    }
}

/// The task that closes idle connections; if its runtime ends, its flag is cleared too.
struct ClosesIdle(Weak<Pool>);

impl ClosesIdle {
    async fn run(mut self) {
        while let Some(next) = self.close() {
            // The pool must not outlive its users for this.
            let Some(closed) = self.0.upgrade().map(|pool| pool.target.closed()) else {
                return;
            };
            tokio::select! {
                () = sleep_until(next) => {}
                () = closed => {}
            }
        }
    }

    /// Closes expired connections; returns when the next one is due.
    fn close(&mut self) -> Option<Instant> {
        let pool = self.0.upgrade()?;
        // A pool of the application that is closed waits for its connections.
        let is_closed = pool.target.is_closed();
        let is_held = pool.leases.as_ref().is_some_and(|it| !it.held.is_empty());
        let is_needed = is_held && !is_closed;
        let (closed, next) = {
            let mut state = pool.state.lock();
            let (closed, next) = state.expire(Instant::now(), is_closed, is_needed);
            state.closes_idle = next.is_some();
            (closed, next)
        };
        // Outside of the mutex.
        drop(closed);
        if next.is_none() {
            // Another task may have begun by now.
            self.0 = Weak::new();
        }
        next
    }
}

impl Drop for ClosesIdle {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.state.lock().closes_idle = false;
        }
    }
}

static PING: LazyLock<Arc<Sql>> = LazyLock::new(|| Sql::new("SELECT 1"));

/// A connection that was used within this time is taken to be alive, unless another one broke since.
const PING_AFTER: Duration = Duration::from_secs(1);

/// How long a connection that was idle may take to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// How much earlier the server may end a statement that has no time left.
const EARLY: Duration = Duration::from_millis(100);

/// How long a connection that is needed stays before it is asked again whether it is.
const RECHECK: Duration = Duration::from_secs(10);

/// A connection that is idle for this long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Backoff before a statement is repeated after a conflict.
const MIN_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(50);

#[cfg(all(test, feature = "mysql", feature = "postgres"))]
mod tests {
    use lock_testkit::servers::PostgresServer;
    use polylock_core::LockUrl;

    use super::*;
    use crate::config::SqlConfig;

    #[tokio::test]
    async fn the_last_connection_stays_open_while_it_is_needed() {
        let url = PostgresServer::shared().database();
        let url = LockUrl::parse(&url).expect("a URL");
        let config = SqlConfig::from_url(&url).expect("a configuration");
        let target = Arc::new(ConnectTarget::of(config).expect("a target"));
        let engine = Engine::of_this_process("test");
        let pool = Pool::new(&engine, &target, 2, Duration::from_secs(5));
        let both = tokio::join!(pool.run(&SLOW, Vec::new()), pool.run(&SLOW, Vec::new()));
        assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
        let late = Instant::now() + IDLE;
        let expire = |now, is_closed, is_needed| {
            let (closed, next) = pool.state.lock().expire(now, is_closed, is_needed);
            (closed.len(), next.map(|next| next > now))
        };
        assert_eq!(expire(Instant::now(), false, false), (0, Some(true)));
        assert_eq!(expire(late, false, true), (1, Some(true)));
        assert_eq!(expire(late, false, true), (0, Some(true)));
        assert_eq!(expire(late, false, false), (1, None));
    }

    /// Takes long enough that two of them need two connections.
    static SLOW: LazyLock<Arc<Sql>> = LazyLock::new(|| Sql::new("SELECT pg_sleep(0.5)"));
}
