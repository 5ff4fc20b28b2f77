//! `mode=row` and `mode=advisory`: locks that live with a connection to the server.
//!
//! A task owns each connection. It acquires and releases locks on it, probes the session every
//! second, and notifies the holders when it is gone. The server is configured to end a session that
//! is silent for a set time; holders are notified before that.

mod acquire;
mod actor;
mod admin;
pub(crate) mod args;
mod context;
mod handle;
mod lease;
mod loss_report;
mod pool;
mod record;
pub(crate) mod server_age;
mod socket;
pub(crate) mod statements;
#[cfg(test)]
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::{Engine, before};
use polylock_core::{
    AcquireRequest, Capabilities, Error, ErrorKind, Grant, LockGuard, LockKey, LockLifetime, Mode,
    Result, Waiting,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use self::context::SessionContext;
use self::handle::{SessionCommand, SessionHold, SessionReply, SessionRequest, ended};
use self::lease::SessionLease;
use self::pool::{Reservation, SessionPool};
use self::statements::SessionStatements;
use crate::budget::{RETRY_INTERVAL, SqlBudget, silent};
use crate::config::{ServerKind, SqlMode};
use crate::dialect;
use crate::error::SqlFailure;
use crate::pool::Pool;
use crate::purge::Purge;
use crate::records::Records;
use crate::wire::ConnectTarget;

/// Locks in the sessions of a database server.
pub(crate) struct SqlSessions {
    context: Arc<SessionContext>,
    pool: Arc<SessionPool>,
    records: Records,
    pub(crate) capabilities: Capabilities,
}

impl SqlSessions {
    pub(crate) fn new(engine: &Engine, target: &Arc<ConnectTarget>) -> Self {
        let config = &target.config;
        let statements = statements(target);
        let control_pool = Pool::new(engine, target, CONTROL_CONNECTIONS, config.timeout);
        let purge = Purge::new(engine, &control_pool, config);
        let records = Records::new(&purge, &control_pool, config);
        let context = Arc::new(SessionContext {
            engine: engine.clone(),
            target: Arc::clone(target),
            control_pool,
            purge,
            mode: config.mode,
            timeout: config.session_timeout,
            request_timeout: config.timeout,
            connections: config.connections,
            scope: scope(target),
            statements,
        });
        Self {
            pool: SessionPool::new(Arc::clone(&context)),
            records,
            capabilities: capabilities(engine.backend(), &context),
            context,
        }
    }

    pub(crate) async fn shutdown(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let is_done = self.context.engine.drain(within).await;
        // If this times out, other clients delete the records.
        before(until, self.pool.retire_idle()).await;
        is_done
    }

    /// Says in a refusal which mode it is that lacks something.
    fn check(&self, request: &AcquireRequest) -> Result<()> {
        self.capabilities.check(request).map_err(|error| {
            // No mode has re-entry.
            if error.kind() != ErrorKind::Unsupported || request.owner().is_some() {
                return error;
            }
            let mode = self.context.mode.name();
            let message = format!("{} in mode={mode}: mode=lease has them", error.message());
            let error = Error::new(ErrorKind::Unsupported, message);
            error
                .with_backend(self.capabilities.backend)
                .with_key(request.key())
        })
    }

    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.check(request)?;
        let budget = SqlBudget::of(request);
        let attempts = self.attempts(request, &budget);
        let limit = match request.wait().waits() {
            // A server has a moment to end its own wait.
            true => budget.limit(GRACE),
            false => Some(Instant::now() + self.context.request_timeout),
        };
        let unserved = || self.unserved(&budget);
        let acquired = match limit {
            Some(limit) => budget.bound(limit, attempts, unserved).await,
            None => attempts.await,
        };
        self.of(request.key(), acquired)
    }

    /// Tries again on another session if one ended in the middle: nothing is held in it.
    async fn attempts(&self, request: &AcquireRequest, budget: &SqlBudget) -> Result<LockGuard> {
        let mut failures = 0;
        loop {
            match self.attempt(request, budget).await {
                Err(failure) if failure.ends_session() && failures < MAX_FAILURES => {
                    failures += 1;
                    // Until another session finds it held, the lock does not count as held.
                    if budget.was_held() && failure.is_outage() {
                        budget.note_outage(request, failure);
                    }
                }
                // A waiter keeps waiting while the server is away, and after it has ended a statement.
                Err(failure)
                    if (failure.is_restart() || budget.was_held() && failure.is_outlasted())
                        && budget.waits() =>
                {
                    budget.note_outage(request, failure);
                    sleep_until(budget.at_most(Instant::now() + RETRY_INTERVAL)).await;
                }
                Err(failure) => return Err(failure.into()),
                Ok(acquired) => return acquired,
            }
        }
    }

    async fn attempt(
        &self,
        request: &AcquireRequest,
        budget: &SqlBudget,
    ) -> Result<Result<LockGuard>, SqlFailure> {
        let is_row = self.context.mode == SqlMode::Row;
        let mut reservation = self.pool.reservation(request, budget, is_row).await?;
        budget.note_old_enough();
        let mut until = None;
        loop {
            let taking = self.take(reservation, request, until);
            reservation = match budget.asking(taking).await {
                Ok(SessionReply::Granted(grant, hold)) => {
                    return Ok(self.guard(request, grant, hold));
                }
                Ok(SessionReply::Held(reservation)) => reservation,
                // An interrupted wait also ended its session.
                Err(failure) if until.is_some() && failure.is_late() => {
                    reservation = self.pool.reservation(request, budget, is_row).await?;
                    until = is_row.then(|| budget.at_most(Instant::now() + SLICE));
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            budget.mark_contended(request);
            if !budget.waits() {
                return Ok(Err(Error::contended(request.wait())));
            }
            if until.is_none() && !is_row {
                // A waiter blocks its session, and so needs one of its own.
                drop(reservation);
                let alone = self.pool.reservation(request, budget, true);
                match before(Instant::now() + TRY_AGAIN, alone).await {
                    Some(alone) => reservation = alone?,
                    // No session can be spared. A shared request may find the lock free.
                    None => {
                        reservation = self.pool.reservation(request, budget, false).await?;
                        continue;
                    }
                }
            }
            until = Some(budget.at_most(Instant::now() + SLICE));
        }
    }

    /// Acquires a lock in a session; if dropped, the acquisition is undone there.
    async fn take(
        &self,
        reservation: Reservation,
        request: &AcquireRequest,
        until: Option<Instant>,
    ) -> Result<SessionReply, SqlFailure> {
        let engine = &self.context.engine;
        let (end, ended) = oneshot::channel();
        let session = Arc::clone(&reservation.session);
        let take = |reply| {
            SessionCommand::Take(Box::new(SessionRequest {
                reservation,
                key: request.key().clone(),
                id: engine.lease_id(),
                is_shared: matches!(request.mode(), Mode::Shared),
                label: request.label().encode(),
                ttl: request.ttl(),
                has_claimed: false,
                until,
                reply,
                _end: end,
            }))
        };
        let taken = engine.poll_woken(|| session.send(take));
        let taken = engine.answered(taken, ended).await;
        taken.unwrap_or_else(|_| Err(self::ended()))
    }

    fn guard(
        &self,
        request: &AcquireRequest,
        grant: Grant,
        hold: SessionHold,
    ) -> Result<LockGuard> {
        let lease = Arc::new(SessionLease::new(
            hold,
            request.key().clone(),
            Arc::clone(&self.context),
            self.capabilities.downgrade,
        ));
        let (engine, ttl) = (&self.context.engine, self.context.timeout);
        let pending = engine.pending(request.key(), lease, ttl);
        pending.granted(request, grant)
    }

    /// The error of a caller without any reply.
    fn unserved(&self, budget: &SqlBudget) -> Error {
        match self.pool.why_full().filter(|_| budget.is_full()) {
            Some(why) => Error::new(ErrorKind::QueueFull, why),
            None => silent(),
        }
    }

    fn named(&self, failure: impl Into<Error>) -> Error {
        failure.into().with_backend(self.capabilities.backend)
    }

    /// What was done with a key, with its name in the error.
    fn of<T>(&self, key: &LockKey, done: Result<T, impl Into<Error>>) -> Result<T> {
        done.map_err(|failure| self.named(failure).with_key(key))
    }
}

/// The statements of a mode on a server.
fn statements(target: &ConnectTarget) -> SessionStatements {
    let (table, mode) = (target.config.table_sql(), target.config.mode);
    match target.config.server {
        ServerKind::Postgres => {
            let is_pooled = target.is_pooled();
            let mut statements = match mode {
                SqlMode::Advisory => dialect::postgres::session::advisory(&table),
                _ => dialect::postgres::session::row(&table, is_pooled),
            };
            if !is_pooled {
                let timeout = target.config.session_timeout;
                statements.setup_more = Some(dialect::postgres::session::settings(timeout));
            }
            statements
        }
        ServerKind::MySql => {
            let sessions = dialect::mysql::session::name_prefix(&scope(target));
            let flavor = target.flavor();
            match mode {
                SqlMode::Advisory => dialect::mysql::session::advisory(&table, &sessions, flavor),
                _ => dialect::mysql::session::row(&table, &sessions, flavor),
            }
        }
    }
}

/// Distinguishes the locks of one table from those of others. If MySQL treats two spellings as one
/// table, their scopes are equal. If it does not, such tables share their locks, which excludes too
/// much, but never too little.
fn scope(target: &ConnectTarget) -> String {
    let config = &target.config;
    let scope = format!("{}\0{}", target.database(), config.table_sql());
    match config.server.is_postgres() {
        true => scope,
        false => scope.to_lowercase(),
    }
}

fn capabilities(backend: &'static str, context: &SessionContext) -> Capabilities {
    let mut capabilities = Capabilities::minimal(backend);
    capabilities.admin = true;
    capabilities.bound = LockLifetime::Connection;
    capabilities.downgrade = context.statements.downgrade.is_some();
    capabilities.fencing = context.target.fencing();
    if context.mode == SqlMode::Row {
        capabilities.max_locks = context.connections;
    }
    capabilities.shared =
        context.target.config.server.is_postgres() || context.mode == SqlMode::Row;
    capabilities.waiting = Waiting::Push;
    capabilities
}

/// Connections for statements that are no part of the transaction of a lock.
const CONTROL_CONNECTIONS: usize = 2;

/// Retry interval while there is no session to wait in.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Longest wait in one message: after it, a server that failed silently is detected.
const SLICE: Duration = Duration::from_secs(60);

/// What a server gets to say that the time is over.
const GRACE: Duration = Duration::from_millis(100);

/// How many sessions may end under one attempt.
const MAX_FAILURES: u32 = 3;
