//! The task that owns a connection, and the locks in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::{LeaseId, Moment};
use polylock_core::{LockKey, LostReason, Released};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::args::{Args, millis};
use super::context::{SessionContext, tokens};
use super::handle::{SessionCommand, SessionHandle, SessionReleaseReply, ended};
use super::loss_report::LossReport;
use super::pool::SessionPool;
use super::record::Recording;
use super::server_age;
use super::socket::{self, SessionSocket};
use super::statements::{SHARES_SESSIONS, SessionStatements, got, is_elsewhere};
use crate::config::SqlMode;
use crate::error::{SqlCause, SqlFailure};
use crate::table::TokenRange;
use crate::wire::{ErrorClass, QueryResult, ServerConnection, Sql};

/// A session, and what it holds.
pub(super) struct Actor {
    pub(super) pool: Arc<SessionPool>,
    pub(super) context: Arc<SessionContext>,
    pub(super) handle: Arc<SessionHandle>,
    commands: mpsc::UnboundedReceiver<SessionCommand>,
    /// None once it is broken.
    pub(super) connection: Option<ServerConnection>,
    /// Whether the session must not be used any more, even if the connection is open.
    pub(super) is_over: bool,
    /// Whether the table has a record of the session.
    pub(super) is_recorded: bool,
    pub(super) socket: SessionSocket,
    /// When to watch it, unless there is a command before.
    pub(super) watch_at: Option<Instant>,
    /// The server's number of the session.
    pub(super) number: i64,
    /// Whether the server was read-only when the session began.
    was_read_only: bool,
    pub(super) held: HashMap<LeaseId, HeldSessionLock>,
    /// When the last command ran.
    rested: Instant,
    /// When the last probe was sent.
    pub(super) probed: Instant,
}

/// A lock in a session.
pub(super) struct HeldSessionLock {
    pub(super) key: LockKey,
    pub(super) is_shared: bool,
    pub(super) label: String,
    pub(super) began: i64,
    pub(super) token: u64,
    /// As requested; a release may take a third of it.
    pub(super) ttl: Duration,
    /// When it was granted, in microseconds of Unix time.
    pub(super) since: u64,
    /// When to record the holder; `None` if that is done, or under way.
    pub(super) record_at: Option<Instant>,
    /// Ends when the record that is under way is written.
    pub(super) recording: Option<Recording>,
}

/// Opens a connection, which nothing serves before [`serve`](Actor::serve).
pub(super) async fn connect(pool: &Arc<SessionPool>) -> Result<Actor, SqlFailure> {
    let context = Arc::clone(&pool.context);
    let until = Instant::now() + context.request_timeout;
    let opened = timeout_at(until, ServerConnection::open(&context.target)).await;
    let opened = opened.map_err(|_| context.target.silent(context.request_timeout))?;
    let mut connection = opened.map_err(SqlFailure::of_opening)?;
    let id = context.engine.lease_id();
    let args = Args::new()
        .with(Args::SESSION_ID, &id.as_bytes()[..])
        .with(Args::TIMEOUT, millis(context.timeout));
    let sent = context.engine.now();
    let setup = &context.statements.setup;
    let answer = server_age::run(&mut connection, setup, &args, until, &context).await?;
    let answer = answer.map_err(SqlFailure::of_opening)?;
    let ends = socket::ends(&answer, context.target.config.port);
    let unfit = || SqlCause::Unfit("a session without a number".to_owned());
    let number = answer.last_int(0).ok_or_else(unfit)?;
    if number == got::ELSEWHERE {
        return Err(SqlCause::Config(SHARES_SESSIONS.to_owned()).into());
    }
    let was_read_only = answer.last_int(READ_ONLY_AT_SETUP) == Some(1);
    if let Some(more) = &context.statements.setup_more {
        let done = server_age::run(&mut connection, more, &args, until, &context).await?;
        if let Err(db_error) = done {
            tracing::debug!(%db_error, "settings that this server does not have");
        }
    }
    if !server_age::is_recorded(&answer) {
        server_age::admit(&mut connection, &context, &args, until).await?;
        pool.sweep();
    }
    let (send, commands) = mpsc::unbounded_channel();
    let handle = Arc::new(SessionHandle::new(id, send, context.trusted_for()));
    handle.prove(sent);
    let now = Instant::now();
    Ok(Actor {
        pool: Arc::clone(pool),
        context,
        handle,
        commands,
        connection: Some(connection),
        is_over: false,
        is_recorded: true,
        socket: SessionSocket::At(ends),
        watch_at: None,
        number,
        was_read_only,
        held: HashMap::new(),
        rested: now,
        probed: now,
    })
}

impl Actor {
    pub(super) async fn serve(mut self) {
        // Reset only to an earlier time, or when it fires: a reset for each command would cost a system
        // call.
        let mut alarm = std::pin::pin!(sleep_until(self.due()));
        while self.connection.is_some() && !self.is_over {
            let due = self.due();
            if due < alarm.deadline() {
                alarm.as_mut().reset(due);
            }
            let command = tokio::select! {
                biased;
                command = self.commands.recv() => command,
                () = socket::closed(self.connection.as_ref()) => {
                    tracing::debug!("the server has closed a session");
                    self.connection = None;
                    break;
                }
                found = self.socket.found() => {
                    self.socket = SessionSocket::Found;
                    if let Some(connection) = &mut self.connection {
                        connection.socket = found;
                    }
                    self.watch();
                    continue;
                }
                () = alarm.as_mut() => {
                    if due <= Instant::now() && !self.do_what_is_due().await {
                        break;
                    }
                    alarm.as_mut().reset(self.due());
                    continue;
                }
            };
            let Some(command) = command else { break };
            self.rested = Instant::now();
            self.stop_watching();
            self.run(command).await;
            self.watch_at = Some(Instant::now() + WATCH_AFTER);
            if self.is_probe_late() {
                self.probe().await;
            }
        }
        self.end();
    }

    /// Whether a probe is due that a session with many commands has put off. Only a probe shows that the
    /// server is still the primary.
    fn is_probe_late(&self) -> bool {
        let due = self.probed + self.context.probe_every();
        let can_probe = !self.held.is_empty() && self.connection.is_some() && !self.is_over;
        can_probe && due <= Instant::now()
    }

    async fn run(&mut self, command: SessionCommand) {
        match command {
            // Here and below, the caller may be gone.
            SessionCommand::Downgrade { id, reply } => drop(reply.send(self.downgrade(id).await)),
            SessionCommand::Draw { id, reply } => drop(reply.send(self.draw_more(id).await)),
            SessionCommand::Record { reply } => {
                self.record_holders(None);
                let recordings = self.held.values_mut().map(|held| held.recording.clone());
                let recordings: Vec<_> = recordings.flatten().collect();
                self.context.engine.spawn_service(async move {
                    for recording in recordings {
                        recording.ended().await;
                    }
                    drop(reply);
                });
            }
            SessionCommand::Release { id, reply } => {
                let reply = SessionReleaseReply::new(reply);
                let released = self.release(id).await;
                reply.send(released);
            }
            SessionCommand::Retire { reply } => {
                self.forget().await;
                let _gone = reply.send(());
            }
            SessionCommand::Take(take) => self.take(*take).await,
        }
    }

    /// When the session has to act without a command.
    fn due(&self) -> Instant {
        let at_server = match self.held.is_empty() {
            true => self.rested + self.context.rests_for(),
            false => self.probed + self.context.probe_every(),
        };
        let records = self.held.values().filter_map(|held| held.record_at);
        records.chain(self.watch_at).fold(at_server, Instant::min)
    }

    /// Does what is due; false if the session is not needed any more.
    async fn do_what_is_due(&mut self) -> bool {
        if self.watch_at.is_some_and(|at| at <= Instant::now()) {
            self.watch();
            return true;
        }
        if self.held.is_empty() {
            // A caller may have a reservation that is still unused.
            self.rested = Instant::now();
            if !self.pool.retire(&self.handle) {
                return true;
            }
            self.forget().await;
            self.pool.sweep_seldom();
            return false;
        }
        if self.probed + self.context.probe_every() <= Instant::now() {
            self.probe().await;
        } else {
            self.record_holders(Some(Instant::now()));
        }
        true
    }

    /// Deletes the record of the session, which holds no lock and acquires no more.
    async fn forget(&mut self) {
        self.is_over = true;
        let args = Args::new().with(Args::SESSION_ID, &self.handle.id.as_bytes()[..]);
        match self.ask(|it| &it.start.forget, &args).await {
            Ok(_) => self.is_recorded = false,
            Err(failure) => {
                tracing::debug!(cause = %failure.cause, "the record of a session that ends was not deleted");
            }
        }
    }

    /// Sends a heartbeat, which also shows that the server is alive, and still the primary.
    pub(super) async fn probe(&mut self) {
        self.probed = Instant::now();
        let args = Args::new()
            .with(Args::SESSION, self.number)
            .with(Args::SESSION_ID, &self.handle.id.as_bytes()[..]);
        match self.ask(|it| &it.probe, &args).await {
            Ok(answer) if answer.int(0) != Some(self.number) => self.lose_moved(),
            Ok(answer) if !self.was_read_only && answer.last_int(READ_ONLY_IN_PROBE) == Some(1) => {
                tracing::warn!("the server has become read-only, another one may be the primary");
                self.lose_locks();
            }
            Ok(_) => {
                // Without its record, a lock looks free.
                self.record_holders(Some(Instant::now()));
                // Also in a process whose sessions are never idle.
                self.pool.sweep_seldom();
            }
            Err(failure) => {
                tracing::warn!(cause = %failure.cause, "a session with locks does not answer");
                self.is_over = true;
                if self.failure_frees_row() {
                    // Its holder is notified without delay, as when the server closes the connection.
                    self.connection = None;
                }
            }
        }
    }

    /// Ends the session and notifies its holders at once, because others may have its locks by now. Whether they
    /// were broken is not asked.
    pub(super) fn lose_locks(&mut self) {
        self.is_over = true;
        for control in self.handle.end().into_values() {
            control.lose(LostReason::SessionEnded);
        }
    }

    /// The connection reaches another session of the server, which has none of the locks.
    pub(super) fn lose_moved(&mut self) {
        tracing::error!("a pooler or a proxy in the path has moved the session");
        self.lose_locks();
    }

    /// Runs a message whose reply proves that the session lives. Without a reply the session is
    /// over.
    pub(super) async fn ask(
        &mut self,
        sql: impl FnOnce(&SessionStatements) -> &Arc<Sql>,
        args: &Args,
    ) -> Result<QueryResult, SqlFailure> {
        let sql = Arc::clone(sql(&self.context.statements));
        self.ask_sql(&sql, args).await
    }

    async fn ask_sql(&mut self, sql: &Sql, args: &Args) -> Result<QueryResult, SqlFailure> {
        let silent = SqlFailure::silent(self.context.request_timeout, true);
        let Some(mut connection) = self.connection.take() else {
            return Err(silent);
        };
        let sent = self.context.engine.now();
        let Ok(answer) = timeout_at(self.limit(), connection.run(sql, args.values())).await else {
            return Err(silent);
        };
        self.answered(connection, sent, answer)
    }

    /// Whether an error of a probe frees the locked row at once: PostgreSQL aborts the transaction.
    fn failure_frees_row(&self) -> bool {
        self.context.mode == SqlMode::Row && self.context.target.config.server.is_postgres()
    }

    /// Keeps a connection that is still usable.
    pub(super) fn answered(
        &mut self,
        connection: ServerConnection,
        sent: Moment,
        answer: Result<QueryResult, crate::wire::DbError>,
    ) -> Result<QueryResult, SqlFailure> {
        let db_error = match answer {
            Ok(answer) => {
                self.handle.prove(sent);
                self.connection = Some(connection);
                return Ok(answer);
            }
            Err(db_error) => db_error,
        };
        // A deadlock ends the transaction, and with it the lock on its row. A server that has become
        // read-only still has the locks. Either way the connection closes after the holders were
        // notified, except after a probe of a row of PostgreSQL, see `probe`.
        let ends_locks = match db_error.class {
            ErrorClass::Conflict => self.context.mode == SqlMode::Row,
            ErrorClass::ReadOnly => true,
            _ => false,
        };
        let closes_later = ends_locks && !self.held.is_empty();
        self.is_over |= closes_later;
        if closes_later || !db_error.class.is_the_end() {
            // An error may be that of another server, to which a proxy has moved the connection: it proves nothing.
            self.connection = Some(connection);
        }
        Err(SqlFailure::of_statement(db_error))
    }

    /// The deadline of a reply: for as long as the session is trusted, if it holds a lock.
    fn limit(&self) -> Instant {
        let request_timeout = Instant::now() + self.context.request_timeout;
        if self.held.is_empty() {
            return request_timeout;
        }
        let left = self.handle.trusted_until().since(self.context.engine.now());
        request_timeout.max(Instant::now() + left)
    }

    /// Frees a lock. The end of the connection frees it as well. Without a reply, or with one that ends the
    /// connection, it is unknown which of the two did.
    pub(super) async fn release(&mut self, id: LeaseId) -> Result<Released, SqlFailure> {
        let Some(mut held) = self.held.remove(&id) else {
            return Ok(Released::AlreadyLost);
        };
        let is_shared = usize::from(held.is_shared);
        let clear = self.context.statements.clear_record.as_ref();
        let clear = clear.map(|clear| Arc::clone(&clear[is_shared]));
        let mut recording = held.recording.take();
        let mut is_late = false;
        if clear.is_none()
            && let Some(recording) = recording.take()
        {
            // Written after the release, it would name a holder that is gone.
            let limit = RECORDING.min(held.ttl / 6);
            is_late = timeout(limit, recording.ended()).await.is_err();
        }
        let args = self.args(&held.key, id).with(Args::TEXT, id.to_hex());
        // What delays the record would delay a release that clears it.
        let is_recorded = held.record_at.is_none() && !is_late;
        let freed = self.ask(
            |it| match is_recorded && clear.is_none() {
                true => &it.release_recorded[is_shared],
                false => &it.release[is_shared],
            },
            &args,
        );
        let freed = freed.await;
        // The record stays, and the next lock would look like the one that it names. PostgreSQL tells their
        // transactions apart.
        let stays = is_recorded && freed.is_err() && clear.is_none();
        let is_postgres = self.context.target.config.server.is_postgres();
        // So does a late one, on PostgreSQL that of a reader only.
        self.is_over |= stays && !is_postgres || is_late && (!is_postgres || held.is_shared);
        if is_recorded && let Some(clear) = clear {
            self.clear_record(clear, args, recording);
        }
        match freed {
            Ok(answer) if is_elsewhere(&answer) => {
                self.lose_moved();
                Err(SqlFailure {
                    outcome_unknown: true,
                    ..ended()
                })
            }
            Ok(answer) => {
                let first = answer.rows.iter().find_map(|row| row.first()?.int());
                Ok(match first {
                    Some(0) => Released::AlreadyLost,
                    _ => Released::Clean,
                })
            }
            Err(failure) => {
                // A record that was not cleared is overwritten by the next one.
                tracing::debug!(cause = %failure.cause, "the release of a lock failed");
                match self.undo(&held.key, held.is_shared).await {
                    true => Ok(Released::Clean),
                    false => Err(SqlFailure {
                        outcome_unknown: true,
                        ..failure
                    }),
                }
            }
        }
    }

    /// Clears the record of a released lock once it is written. Until then the record names a session
    /// that does not have the lock, and so counts for nothing.
    fn clear_record(&self, sql: Arc<Sql>, args: Args, recording: Option<Recording>) {
        let context = Arc::clone(&self.context);
        // Counted: a shutdown waits for it, because the record of a reader would stay forever.
        self.context.engine.spawn(async move {
            if let Some(recording) = recording {
                recording.ended().await;
            }
            if let Err(failure) = context.control(&sql, args).await {
                tracing::debug!(cause = %failure.cause, "the record of a released lock stays until the next one");
            }
        });
    }

    pub(super) async fn downgrade(&mut self, id: LeaseId) -> Result<(), SqlFailure> {
        let sql = self.context.statements.downgrade.clone();
        let sql = sql.ok_or_else(ended)?;
        let mut held = self.held.remove(&id).ok_or_else(ended)?;
        if held.is_shared {
            // Asked a second time. The server counts how often a session has a lock.
            self.held.insert(id, held);
            return Ok(());
        }
        if let Some(recording) = held.recording.take() {
            // Written after the shared record, it would name an exclusive holder.
            drop(timeout(RECORDING, recording.ended()).await);
        }
        let args = self.args(&held.key, id);
        let failure = match self.ask_sql(&sql, &args).await {
            Ok(answer) if is_elsewhere(&answer) => {
                self.lose_moved();
                Some(ended())
            }
            Ok(_) => None,
            // It may be held in both ways.
            Err(failure) => Some(failure),
        };
        if let Some(failure) = failure {
            self.held.insert(id, held);
            self.is_over = true;
            return Err(failure);
        }
        held.is_shared = true;
        held.record_at = Some(Instant::now());
        self.held.insert(id, held);
        Ok(())
    }

    /// Draws more tokens for a holder; `None` if its lock is lost.
    pub(super) async fn draw_more(
        &mut self,
        id: LeaseId,
    ) -> Result<Option<TokenRange>, SqlFailure> {
        let held = self.held.get(&id).filter(|held| !held.is_shared);
        let Some(args) = held.map(|held| self.args(&held.key, id)) else {
            return Ok(None);
        };
        let answer = self.ask(|it| &it.draw, &args).await?;
        if answer.last_int(0) == Some(got::ELSEWHERE) {
            self.lose_moved();
            return Ok(None);
        }
        let drawn = answer.rows.iter().find_map(|row| {
            let [first, last] = row.as_slice() else {
                return None;
            };
            tokens(first.int()?, last.int()?)
        });
        let malformed = || SqlCause::Unfit("a draw without tokens".to_owned());
        drawn.map(Some).ok_or_else(|| malformed().into())
    }

    /// Ends the wait of this session from another connection.
    pub(super) async fn cancel(&self) {
        let args = Args::new().with(Args::SESSION, self.number);
        let sql = &self.context.statements.cancel;
        match timeout(CANCELLING, self.context.control(sql, args)).await {
            Ok(Ok(_)) => {}
            Ok(Err(failure)) => {
                tracing::debug!(cause = %failure.cause, "a wait could not be cancelled");
            }
            Err(_) => tracing::debug!("a wait could not be cancelled in time"),
        }
    }

    /// Ends the session: no more reservations; the server frees its locks when the connection
    /// closes.
    fn end(&mut self) {
        self.pool.remove(&self.handle);
        // The connection closes after the holders have been notified; then the server frees their
        // locks.
        let connection = self.connection.take();
        let controls = self.handle.end();
        if self.is_recorded || !controls.is_empty() {
            let is_recorded = self.is_recorded;
            let id = self.handle.id;
            let held = controls.into_iter().filter_map(|(id, control)| {
                let key = self.held.get(&id).map(|held| held.key.clone());
                key.map(|key| (id, key, control))
            });
            let report = LossReport(held.collect());
            let context = Arc::clone(&self.context);
            self.context.engine.spawn_service(async move {
                report.tell(&context, connection.is_some()).await;
                drop(connection);
                if is_recorded {
                    server_age::forget_later(&context, id).await;
                }
            });
        }
        self.commands.close();
    }

    pub(super) fn args(&self, key: &LockKey, id: LeaseId) -> Args {
        self.context
            .args(key)
            .with(Args::SESSION_ID, &self.handle.id.as_bytes()[..])
            .with(Args::SESSION, self.number)
            .with(Args::LEASE, &id.as_bytes()[..])
            .with(Args::TIMEOUT, millis(self.context.timeout))
    }
}

/// A runtime that ends takes the task with it, and the connection.
impl Drop for Actor {
    fn drop(&mut self) {
        if !self.commands.is_closed() {
            self.end();
        }
    }
}

/// How long a release waits for the record of its holder, and at most a sixth of the ttl: half of the time
/// that its guard allows. A record is written in one round trip, so a release rarely waits at all.
const RECORDING: Duration = Duration::from_secs(1);

/// Idle time before the socket is watched: short holds cost nothing.
const WATCH_AFTER: Duration = Duration::from_millis(100);

/// The columns that say whether the server is read-only.
const READ_ONLY_AT_SETUP: usize = 5;
const READ_ONLY_IN_PROBE: usize = 1;

/// How long the server may take to end a wait.
const CANCELLING: Duration = Duration::from_secs(1);
