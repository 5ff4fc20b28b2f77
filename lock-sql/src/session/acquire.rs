//! How a session acquires a lock.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::Moment;
use polylock_core::{FencingToken, Grant, LockKey};
use tokio::time::{Instant, sleep_until};

use super::actor::{Actor, HeldSessionLock};
use super::args::{Args, millis};
use super::handle::{SessionHold, SessionReply, SessionRequest, ended};
use super::loss_report;
use super::record::RECORD_AFTER;
use super::statements::{SHARES_SESSIONS, column, got, is_elsewhere};
use crate::config::SqlMode;
use crate::error::{SqlCause, SqlFailure};
use crate::wire::{ErrorClass, QueryResult, SqlValue};

/// The reply to a successful acquisition.
#[derive(Clone, Copy, Debug)]
struct Got {
    /// When the server granted the lock, or earlier.
    since: Moment,
    /// Whether `since` follows from the server's measure of the wait.
    is_measured: bool,
    token: u64,
    session: i64,
    began: i64,
    /// Whether another session waits for the exclusive lock.
    claimed: bool,
}

enum SessionStep {
    Got(Got),
    /// Another session holds the lock; whether this session has something to undo.
    Held {
        is_dirty: bool,
    },
}

impl Actor {
    pub(super) async fn take(&mut self, mut take: SessionRequest) {
        if take.reply.is_closed() {
            return;
        }
        let (key, id, is_shared) = (take.key.clone(), take.id, take.is_shared);
        match self.step(&mut take).await {
            Ok(SessionStep::Got(got)) => {
                self.holds(&take, got);
                take.reservation.settle();
                let grant = Grant::new(got.since, Some(FencingToken::new(got.token)));
                let hold = SessionHold {
                    reservation: take.reservation,
                    id,
                    is_kept: true,
                };
                // If the caller is gone, dropping this releases the lock.
                drop(take.reply.send(Ok(SessionReply::Granted(grant, hold))));
            }
            Ok(SessionStep::Held { is_dirty }) => {
                // If the caller is gone, its reservation is dropped.
                drop(take.reply.send(Ok(SessionReply::Held(take.reservation))));
                if is_dirty {
                    // Later commands queue behind this one.
                    self.undo(&key, is_shared).await;
                }
            }
            Err(failure) => {
                // A pooler or a proxy has switched to another session or server. Nothing was locked there, and what
                // another client has locked must not be freed.
                if matches!(failure.cause, SqlCause::Config(_)) {
                    self.lose_locks();
                }
                // The end of the session frees the lock as well.
                if !self.is_over {
                    self.undo(&key, is_shared).await;
                }
                self.is_over |= failure.ends_session();
                drop(take.reply.send(Err(failure)));
            }
        }
    }

    /// Repeats the request until the rows of the key exist.
    async fn step(&mut self, take: &mut SessionRequest) -> Result<SessionStep, SqlFailure> {
        let mut missing = 0;
        let mut conflict = None;
        while missing < MAX_MISSING {
            let args = self.args(&take.key, take.id);
            let sent = self.context.engine.now();
            let answer = match take.until {
                None => {
                    let is_shared = usize::from(take.is_shared);
                    let asked = self.ask(|it| &it.try_take[is_shared], &args);
                    asked.await.map(Some)
                }
                Some(until) => self.wait(take, until, args).await,
            };
            let answer = match answer {
                Ok(Some(answer)) => answer,
                Ok(None) => return Ok(SessionStep::Held { is_dirty: false }),
                Err(failure) if failure.class() == Some(ErrorClass::LockTimeout) => {
                    // The transaction is aborted; the lock may have been granted after the limit.
                    return Ok(SessionStep::Held { is_dirty: true });
                }
                // MariaDB reports a deadlock if the row is deleted meanwhile.
                Err(failure) if failure.class() == Some(ErrorClass::Conflict) => {
                    self.undo_or_end(&take.key, take.is_shared).await?;
                    conflict = Some(failure);
                    missing += 1;
                    continue;
                }
                // Another client has this session now, and what was prepared in it is gone.
                Err(failure)
                    if failure.class() == Some(ErrorClass::Unprepared)
                        && self.context.mode == SqlMode::Advisory =>
                {
                    return Err(SqlCause::Config(SHARES_SESSIONS.to_owned()).into());
                }
                Err(failure) => return Err(failure),
            };
            match self.read(sent, &answer)? {
                None => {
                    self.undo_or_end(&take.key, take.is_shared).await?;
                    // If a transaction is inserting them, it blocks only this session, and no connection
                    // that others need.
                    let args = self.args(&take.key, take.id);
                    match self.ask(|it| &it.seed, &args).await.map(drop) {
                        Ok(()) => {
                            missing += 1;
                            self.context.purge.grown();
                        }
                        // An open transaction has inserted them, and holds the lock.
                        Err(failure) if failure.class() == Some(ErrorClass::LockTimeout) => {
                            let until = take.until.unwrap_or_else(Instant::now);
                            if until <= Instant::now() || take.reply.is_closed() {
                                return Ok(SessionStep::Held { is_dirty: false });
                            }
                        }
                        Err(failure) if failure.class() == Some(ErrorClass::Conflict) => {
                            conflict = Some(failure);
                            missing += 1;
                        }
                        Err(failure) => return Err(failure),
                    }
                }
                // A waiter for the exclusive lock has priority over new shared holders.
                Some(SessionStep::Got(got)) if got.claimed && take.is_shared => {
                    self.undo_or_end(&take.key, true).await?;
                    let until = take.until.unwrap_or_else(Instant::now);
                    let backoff = Instant::now()
                        + self.context.engine.jitter(CLAIM_BACKOFF / 2, CLAIM_BACKOFF);
                    if until <= backoff || take.reply.is_closed() {
                        return Ok(SessionStep::Held { is_dirty: false });
                    }
                    sleep_until(backoff).await;
                }
                Some(SessionStep::Got(got)) if !got.is_measured => {
                    return self.confirm(got).await.map(SessionStep::Got);
                }
                Some(step) => return Ok(step),
            }
        }
        let vanishes = || {
            let says = "the row of a lock vanishes again and again".to_owned();
            SqlCause::Unfit(says).into()
        };
        Err(conflict.unwrap_or_else(vanishes))
    }

    /// Runs a message that waits on the server; `None` after the deadline. If the caller is gone, the
    /// wait is cancelled there, a possible grant is undone, and the session is closed: a late
    /// cancellation would end another statement.
    async fn wait(
        &mut self,
        take: &mut SessionRequest,
        until: Instant,
        args: Args,
    ) -> Result<Option<QueryResult>, SqlFailure> {
        let context = Arc::clone(&self.context);
        let sql = &context.statements.wait_take[usize::from(take.is_shared)];
        let left = until.saturating_duration_since(Instant::now());
        let args = args.with(Args::WAIT, millis(left));
        let Some(mut connection) = self.connection.take() else {
            return Ok(None);
        };
        let sent = context.engine.now();
        let late = until + SLACK;
        let (answer, is_cancelled) = {
            let mut message = std::pin::pin!(connection.run(sql, args.values()));
            let mut claim = Instant::now() + CLAIM_AFTER;
            let cancelled = loop {
                tokio::select! {
                    biased;
                    answer = &mut message => break Some(answer),
                    () = take.reply.closed() => break None,
                    () = sleep_until(late) => break None,
                    () = sleep_until(claim) => {
                        self.claim(take);
                        take.has_claimed = true;
                    }
                }
                claim = Instant::now() + CLAIM_AFTER;
            };
            match cancelled {
                Some(answer) => (Some(answer), false),
                None => {
                    // Behind a pooler the server's session is unknown; closing the connection ends
                    // the wait.
                    if !context.target.is_pooled() {
                        self.cancel().await;
                    }
                    (tokio::time::timeout(ENDING, message).await.ok(), true)
                }
            }
        };
        // Without a reply, closing the connection frees a possible grant. It does not show that another
        // session holds the lock.
        let Some(answer) = answer else {
            return Err(SqlFailure::silent(SLACK + ENDING, true));
        };
        let answered = self.answered(connection, sent, answer);
        if is_cancelled {
            self.undo(&take.key, take.is_shared).await;
            self.connection = None;
            // As without a reply, any other error does not show that another session holds the lock.
            return match answered {
                Err(failure) if !failure.ends_wait() => Err(failure),
                _ => Ok(None),
            };
        }
        answered.map(Some)
    }

    /// Keeps new shared holders out for a while. Does not wait for the result.
    fn claim(&self, take: &SessionRequest) {
        let context = &self.context;
        if !take.is_shared
            && let Some(sql) = &context.statements.claim
        {
            let unless = "a waiter could not say that it waits";
            context.in_background(sql, context.args(&take.key), unless);
        }
    }

    /// `None` if the row of the key is missing.
    fn read(&self, sent: Moment, answer: &QueryResult) -> Result<Option<SessionStep>, SqlFailure> {
        let is_locked =
            |row: &Vec<SqlValue>| row.last().and_then(SqlValue::int) == Some(got::TAKEN);
        if self.context.mode == SqlMode::Row && !answer.rows.iter().any(is_locked) {
            return Ok(None);
        }
        let malformed =
            || SqlFailure::from(SqlCause::Unfit("an answer without its columns".to_owned()));
        if answer.rows.last().is_none_or(|row| row.len() < 2) {
            return Err(malformed());
        }
        let get = |column: usize| answer.last_int(column).ok_or_else(malformed);
        let token = match get(column::TOKEN)? {
            got::NOT => return Ok(Some(SessionStep::Held { is_dirty: false })),
            // Not a held lock, which would be a reply.
            got::INTERRUPTED => return Err(SqlCause::Interrupted.into()),
            // Another session begins on the server that is there now, once it is admitted.
            got::ELSEWHERE if self.context.mode == SqlMode::Row => {
                tracing::warn!(
                    "a proxy in the path has moved a session to another one of a server"
                );
                return Err(ended());
            }
            got::ELSEWHERE => return Err(SqlCause::Config(SHARES_SESSIONS.to_owned()).into()),
            token => u64::try_from(token).map_err(|_| malformed())?,
        };
        if answer.last_int(column::ADMITTED) == Some(0) {
            return Err(ended());
        }
        let waited = u64::try_from(get(column::ELAPSED)?).ok();
        let waited = waited.map(Duration::from_micros);
        let (context, now) = (&self.context, self.context.engine.now());
        let margin = context.timeout - context.trusted_for();
        let granted = granted_at(sent, waited, now, margin).filter(|granted| {
            // An older one is a poor proof of the session.
            now.since(*granted) < context.probe_every()
        });
        Ok(Some(SessionStep::Got(Got {
            since: granted.unwrap_or(sent),
            is_measured: granted.is_some(),
            token,
            session: get(column::SESSION)?,
            began: get(column::BEGAN)?,
            claimed: answer.last_int(column::CLAIMED) == Some(1),
        })))
    }

    /// Proves a session by a probe if the request of the lock may be too old to do so.
    async fn confirm(&mut self, got: Got) -> Result<Got, SqlFailure> {
        self.set_number(got);
        let since = self.context.engine.now();
        self.probe().await;
        match self.is_over || self.connection.is_none() {
            true => Err(ended()),
            false => Ok(Got { since, ..got }),
        }
    }

    fn set_number(&mut self, got: Got) {
        // Behind a pooler each transaction may have another session of the server's.
        if self.context.mode == SqlMode::Row {
            self.number = got.session;
        }
    }

    fn holds(&mut self, take: &SessionRequest, got: Got) {
        self.handle.prove(got.since);
        self.set_number(got);
        let context = &self.context;
        if take.has_claimed
            && let Some(sql) = &context.statements.unclaim
        {
            let unless = "the claim of a waiter that was served ends by its time";
            context.in_background(sql, context.args(&take.key), unless);
        }
        let held = HeldSessionLock {
            key: take.key.clone(),
            is_shared: take.is_shared,
            label: take.label.clone(),
            began: got.began,
            token: got.token,
            ttl: take.ttl,
            since: loss_report::unix_now(),
            record_at: Some(Instant::now() + RECORD_AFTER),
            recording: None,
        };
        self.held.insert(take.id, held);
    }

    /// Frees a lock that a failed acquisition may have left; false if the session ends instead, which
    /// frees it as well.
    pub(super) async fn undo(&mut self, key: &LockKey, is_shared: bool) -> bool {
        if self.connection.is_none() {
            return false;
        }
        let args = self.context.args(key);
        let args = args.with(Args::SESSION_ID, &self.handle.id.as_bytes()[..]);
        let args = args.with(Args::SESSION, self.number);
        let undone = self.ask(|it| &it.release[usize::from(is_shared)], &args);
        let undone = undone.await;
        let is_moved = undone.as_ref().is_ok_and(is_elsewhere);
        if is_moved {
            self.lose_moved();
        }
        let is_undone = undone.is_ok() && !is_moved;
        if !is_undone {
            self.is_over = true;
            // With other locks in it, it closes after their holders have been notified.
            if self.held.is_empty() {
                self.connection = None;
            }
        }
        is_undone
    }

    /// Undoes, or fails if the session ends: for an acquisition that continues in it.
    async fn undo_or_end(&mut self, key: &LockKey, is_shared: bool) -> Result<(), SqlFailure> {
        match self.undo(key, is_shared).await {
            true => Ok(()),
            false => Err(ended()),
        }
    }
}

/// When a lock was granted that was requested at `sent`: after the wait at the server, without the time
/// of the reply. `None` if it cannot be told, because the clock of the server, which measures the wait,
/// was set meanwhile, or may have been set by more than `margin`, by which a session outlasts its trust.
fn granted_at(
    sent: Moment,
    waited: Option<Duration>,
    now: Moment,
    margin: Duration,
) -> Option<Moment> {
    let granted = sent + waited.filter(|waited| *waited <= margin)?;
    (granted <= now).then_some(granted)
}

/// Extra time for the server to end a wait by itself, which keeps the connection usable.
const SLACK: Duration = Duration::from_millis(80);

/// How long a waiter waits before it keeps new shared holders out, and how often it repeats the claim. A
/// claim lasts for two seconds.
const CLAIM_AFTER: Duration = Duration::from_millis(300);

/// Backoff of a shared request that lets an exclusive waiter pass.
const CLAIM_BACKOFF: Duration = Duration::from_millis(40);

/// How often the rows of a key may be missing after they were created: a purge deletes rows that are
/// older than a second.
const MAX_MISSING: u32 = 8;

/// How long a wait that was cancelled may take to end.
const ENDING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_the_clock_of_the_server_has_changed_was_not_measured() {
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        let cases = [
            (Some(0), Some(at(10))),
            (Some(2), Some(at(12))),
            // It ends in the future, or is below 0.
            (Some(3), None),
            (Some(4), None),
            (None, None),
        ];
        for (waited, granted) in cases {
            let waited = waited.map(Duration::from_secs);
            let margin = Duration::from_secs(3);
            let found = granted_at(at(10), waited, at(12), margin);
            assert_eq!(found, granted, "{waited:?}");
        }
        let late = granted_at(
            at(10),
            Some(Duration::from_secs(4)),
            at(60),
            Duration::from_secs(3),
        );
        assert_eq!(late, None, "longer than the margin");
    }
}
