//! `mode=row` and `mode=advisory`: locks that live with a connection to the server.
//!
//! A task owns each connection, takes and frees locks on it, asks every second whether the session
//! is there, and tells the holders when it is not. The server is told how long a session may be
//! silent, and ends it after that; holders are told before.

mod actor;
mod admin;
pub(crate) mod args;
mod budget;
mod handle;
mod lease;
mod lost;
mod record;
mod roster;
pub(crate) mod server_age;
mod socket;
mod take;
mod terms;
#[cfg(test)]
mod tests;
pub(crate) mod texts;

use std::sync::Arc;
use std::time::Duration;

use lock_core::engine::{Engine, before};
use lock_core::{
    AcquireRequest, Bound, Capabilities, Error, Lease, LockGuard, Mode, Result, Waiting,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use self::budget::Budget;
use self::handle::{Command, Granted, Take, Taken, Undoing};
use self::lease::{SessionLease, ended};
use self::roster::{ASK_AGAIN, Place, Roster};
use self::terms::{SessionMode, Terms};
use crate::config::{SqlConfig, SqlMode};
use crate::error::Failure;
use crate::pool::Pool;
use crate::wire::{Flavour, Target};

/// Locks in the sessions of a database server.
#[derive(Debug)]
pub(crate) struct Sessions {
    terms: Arc<Terms>,
    roster: Arc<Roster>,
    capabilities: Capabilities,
}

impl Sessions {
    /// Opens nothing yet; `flavour` matters on MySQL only.
    pub(crate) fn new(
        engine: &Engine,
        target: &Arc<Target>,
        config: &SqlConfig,
        flavour: Flavour,
    ) -> Self {
        let mode = match config.mode {
            SqlMode::Advisory => SessionMode::Advisory,
            _ => SessionMode::Row,
        };
        let is_postgres = config.server.is_postgres();
        let texts = texts::of(config, target, mode, flavour);
        let terms = Arc::new(Terms {
            engine: engine.clone(),
            target: Arc::clone(target),
            clerk: Pool::new(engine, target, CLERKS, config.timeout),
            mode,
            timeout: config.session_timeout,
            patience: config.timeout,
            connections: config.connections,
            scope: scope(config),
            is_postgres,
            texts,
        });
        Self {
            roster: Roster::new(Arc::clone(&terms)),
            capabilities: capabilities(engine.backend(), &terms),
            terms,
        }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    pub(crate) async fn shutdown(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let is_done = self.terms.engine.drain(within).await;
        // Whoever does not wait for it leaves records that others delete.
        before(until, self.roster.retire_idle()).await;
        is_done
    }

    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities.check(request)?;
        let budget = Budget::of(request, self.terms.patience, self.terms.connections);
        let attempts = self.attempts(request, &budget);
        let acquired = match budget.limit() {
            Some(limit) => match before(limit, attempts).await {
                Some(acquired) => acquired,
                None => Err(budget.gives_up(self.roster.len())),
            },
            None => attempts.await,
        };
        acquired.map_err(|e| self.named(e).with_key(request.key()))
    }

    /// Tries again on another session if one ended in the middle: nothing is held in it.
    async fn attempts(&self, request: &AcquireRequest, budget: &Budget) -> Result<LockGuard> {
        let mut failures = 0;
        loop {
            match self.attempt(request, budget).await {
                Err(failure) if failure.ends_session() && failures < MOST_FAILURES => {
                    failures += 1;
                }
                // A waiter keeps waiting while the server is away.
                Err(failure)
                    if (failure.is_restart() || budget.was_held() && failure.is_outage())
                        && budget.waits()
                        && !budget.is_over() =>
                {
                    budget.note_restart(failure);
                    sleep_until(budget.until().min(Instant::now() + ASK_AGAIN)).await;
                }
                Err(failure) => return Err(failure.into()),
                Ok(acquired) => return acquired,
            }
        }
    }

    async fn attempt(
        &self,
        request: &AcquireRequest,
        budget: &Budget,
    ) -> Result<Result<LockGuard>, Failure> {
        let key = request.key();
        let is_row = self.terms.mode == SessionMode::Row;
        let mut place = self.roster.place(key, is_row).await?;
        budget.note_place();
        let mut until = None;
        loop {
            let id = self.terms.engine.lease_id();
            let lease = Arc::new(SessionLease::new(id, self.capabilities.downgrade));
            place = match self.take(place, request, id, until).await {
                Ok(Taken::Granted(granted)) => return Ok(self.guard(request, &lease, granted)),
                Ok(Taken::Held(place)) => place,
                // A wait that was cut off took its session along.
                Err(failure) if until.is_some() && failure.is_late() => {
                    self.roster.place(key, true).await?
                }
                Err(failure) => return Err(failure),
            };
            budget.note_held();
            if !budget.waits() || budget.is_over() {
                return Ok(Err(budget.contended()));
            }
            if until.is_none() {
                request.note_held();
                if !is_row {
                    // Whoever waits keeps others from using the session, and so has one of its own.
                    drop(place);
                    let alone = self.roster.place(key, true);
                    match before(Instant::now() + TRY_AGAIN, alone).await {
                        Some(alone) => place = alone?,
                        // All sessions hold something. One of them may find the lock free.
                        None => {
                            place = self.roster.place(key, false).await?;
                            continue;
                        }
                    }
                }
            }
            until = Some(budget.until());
        }
    }

    /// Takes a lock in a session; dropped, it is undone there.
    async fn take(
        &self,
        place: Place,
        request: &AcquireRequest,
        id: lock_core::engine::LeaseId,
        until: Option<Instant>,
    ) -> Result<Taken, Failure> {
        let (reply, taken) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let session = Arc::clone(&place.session);
        let take = Take {
            place,
            key: request.key().clone(),
            id,
            is_shared: matches!(request.mode(), Mode::Shared),
            label: request.label().encode(),
            has_claimed: false,
            until,
            reply,
            _end: end,
        };
        let sent = session.commands.send(Command::Take(Box::new(take)));
        sent.map_err(|_| self::ended())?;
        let undoing = Undoing::new(&self.terms.engine, ended);
        let taken = taken.await.unwrap_or_else(|_| Err(self::ended()));
        undoing.disarm();
        taken
    }

    fn guard(
        &self,
        request: &AcquireRequest,
        lease: &Arc<SessionLease>,
        granted: Granted,
    ) -> Result<LockGuard> {
        let grant = lease.granted(granted);
        let armed: Arc<dyn Lease> = Arc::<SessionLease>::clone(lease);
        let pending = self
            .terms
            .engine
            .pending(request.key(), armed, self.terms.timeout);
        pending.granted(request, grant)
    }

    fn named(&self, error: Error) -> Error {
        error.with_backend(self.capabilities.backend)
    }
}

/// What tells the locks of one table from those of others. Where MySQL takes two spellings for one
/// table, they are one; where it does not, such tables share their locks, which excludes too much and
/// never too little.
fn scope(config: &SqlConfig) -> String {
    let scope = format!("{}\0{}", config.database, config.table_sql());
    match config.server.is_postgres() {
        true => scope,
        false => scope.to_lowercase(),
    }
}

fn capabilities(backend: &'static str, terms: &Terms) -> Capabilities {
    let mut capabilities = Capabilities::least(backend);
    capabilities.admin = true;
    capabilities.bound = Bound::Connection;
    capabilities.downgrade = terms.texts.downgrade.is_some();
    capabilities.fencing = terms.target.fencing();
    if terms.mode == SessionMode::Row {
        capabilities.max_locks = terms.connections;
    }
    capabilities.shared = terms.is_postgres || terms.mode == SessionMode::Row;
    capabilities.waiting = Waiting::Push;
    capabilities
}

/// Connections for statements that are no part of the transaction of a lock.
const CLERKS: usize = 2;

/// Pause between two attempts of whoever finds no session to wait in.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// How many sessions may end under one attempt.
const MOST_FAILURES: u32 = 3;
