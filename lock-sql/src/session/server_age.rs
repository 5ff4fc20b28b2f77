//! Which locks a recently started server may grant.
//!
//! After a power loss, a host does not notify its clients that their sessions have ended. A holder
//! trusts its lock until its session timeout is nearly over, and the restarted server does not know the
//! lock. So each session is recorded in the table, with its timeout and the start of its server, before
//! it acquires a lock. The record is deleted when no holder relies on the session. A start of the server
//! is *admitted* in the table, once for all clients: at once if no session of the previous start has a
//! record, and otherwise when the longest of their timeouts has passed. Sessions acquire locks only on
//! an admitted start.
//!
//! No server clock is trusted, because it may be set when the host returns. The time counts from the
//! moment when a client finds the server restarted, by the boot clock of its machine. It is stored in
//! the table for the next client on that machine.
//!
//! The row of kind 7 has the admitted start, rows of kind 6 are sessions, and rows of kind 8 say when a
//! machine found the server restarted. The version of the row of kind 7 counts the admitted starts; a
//! row of kind 8 has the version that it found.

use std::collections::HashMap;
use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use polylock_core::engine::{BootClock, Clock as _, LeaseId, Moment, Mutex, is_mutant};
use tokio::time::{Instant, sleep, timeout_at};

use super::args::Args;
use super::context::SessionContext;
use crate::boot_id;
use crate::error::{SqlCause, SqlFailure};
use crate::wire::{DbError, QueryResult, ServerConnection, Sql, SqlValue};

/// What the table knows of the start of a server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Start {
    current: Vec<u8>,
    /// The start that was admitted last; `None` if the table has no admitted start.
    admitted: Option<Vec<u8>>,
    lineage: Vec<u8>,
    /// The longest timeout of the sessions on the admitted start.
    longest: Duration,
    /// The same for sessions whose record exists.
    open: Duration,
    /// Whether the server still has everything that it acknowledged before it was killed.
    is_durable: bool,
    /// How long ago a client on this machine found the server restarted.
    witnessed: Duration,
    /// How many starts were admitted before that one.
    version: u64,
}

impl Start {
    pub(crate) fn read(answer: &QueryResult) -> Option<Self> {
        let row = answer.rows.last().filter(|row| row.len() > 1)?;
        let bytes = |at: usize| row.get(at).and_then(SqlValue::bytes);
        let number = |at: usize| row.get(at)?.int().map(|n| u64::try_from(n).unwrap_or(0));
        Some(Self {
            current: bytes(0)?.to_vec(),
            admitted: bytes(1).map(<[u8]>::to_vec),
            longest: Duration::from_millis(number(2)?),
            lineage: bytes(3).unwrap_or_default().to_vec(),
            open: Duration::from_millis(number(4)?),
            is_durable: number(5)? == 1,
            witnessed: Duration::from_micros(number(6)?),
            version: number(7)?,
        })
    }

    /// How long holders may trust sessions of the admitted start after it has ended; `None` if it has
    /// not ended.
    fn doubt(&self, lineage: &[u8]) -> Option<Duration> {
        let admitted = self.admitted.as_ref()?;
        if *admitted == self.current {
            return None;
        }
        // A copy of the data, or a server that forgets, may lack the records of some sessions.
        let is_complete = self.is_durable && !lineage.is_empty() && self.lineage == lineage;
        Some(if is_complete { self.open } else { self.longest })
    }

    /// How long sessions on the server may take no locks; `None` if they may.
    fn time_left(&self, lineage: &[u8], waited: Duration) -> Option<Duration> {
        let left = self.doubt(lineage)?.saturating_sub(waited);
        (!left.is_zero() && !is_mutant("sql-server-age")).then_some(left)
    }

    /// Refuses a server on which a new lock may have another holder.
    pub(crate) fn excludes(&self, lineage: &[u8]) -> Result<(), SqlCause> {
        let waited = self.waited();
        match self.time_left(lineage, waited) {
            None => Ok(()),
            Some(left) => Err(SqlCause::Restarted { waited, left }),
        }
    }

    /// How long the admitted start is known to have ended. Called after the reply that shows it.
    fn waited(&self) -> Duration {
        let Some(admitted) = self.admitted.as_ref().filter(|it| **it != self.current) else {
            return Duration::ZERO;
        };
        let now = BootClock::default().now();
        let mut ended = ENDED.lock();
        if ended.len() > MAX_STARTS {
            ended.clear();
        }
        // A copy of the table on another server does not describe this server. After two switchovers
        // without a restart, the same two starts occur again with another version.
        let starts = (admitted.clone(), self.current.clone(), self.version);
        let found = *ended.entry(starts).or_insert(now);
        now.since(found).max(self.witnessed)
    }
}

/// When this process found that a start of a server had ended, because there was another one.
static ENDED: LazyLock<Mutex<HashMap<Starts, Moment>>> = LazyLock::new(Mutex::default);

/// The start that was admitted, the one that the server has, and the version of the admission.
type Starts = (Vec<u8>, Vec<u8>, u64);

/// The arguments that identify this machine and its time.
pub(crate) fn witness_args(args: Args) -> Args {
    let micros = BootClock::default().now().as_nanos() / 1000;
    let args = args.with(Args::BEGAN, micros);
    match &*MACHINE {
        Some(machine) => args.with(Args::NAME, machine.as_bytes()),
        None => args,
    }
}

/// Distinguishes the boot clock of this process from others: a time namespace has its own.
static MACHINE: LazyLock<Option<String>> = LazyLock::new(|| {
    let boot = boot_id::read().ok()?;
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let words: Vec<_> = boot
        .split_whitespace()
        .chain(offsets.split_whitespace())
        .collect();
    Some(words.join(" "))
});

/// Admits the start of the server for a session if it is time, and records the session.
pub(super) async fn admit(
    connection: &mut ServerConnection,
    context: &SessionContext,
    args: &Args,
    until: Instant,
) -> Result<(), SqlFailure> {
    let statements = &context.statements.start;
    let lineage = match run(connection, &statements.lineage, args, until, context).await? {
        Ok(answer) => first_text(&answer),
        Err(db_error) if db_error.class.is_the_end() => {
            return Err(SqlFailure::of_opening(db_error));
        }
        Err(db_error) => {
            tracing::debug!(%db_error, "the server does not tell which copy of the data it has");
            Vec::new()
        }
    };
    for _ in 0..ATTEMPTS {
        let read = witness_args(args.clone());
        let answer = run(connection, &statements.read, &read, until, context).await?;
        let answer = answer.map_err(SqlFailure::of_opening)?;
        let unfit = || SqlFailure::from(SqlCause::Unfit("a start without its columns".to_owned()));
        let start = Start::read(&answer).ok_or_else(unfit)?;
        if let Err(restarted) = start.excludes(&lineage) {
            let witness = witness_args(args.clone());
            let noted = run(connection, &statements.witness, &witness, until, context).await?;
            noted.map_err(SqlFailure::of_opening)?;
            return Err(restarted.into());
        }
        let admitted = args
            .clone()
            .with(Args::LABEL, lineage.clone())
            .with(Args::TEXT, start.admitted)
            .with(Args::SEEN, start.version);
        // After two switchovers the same start is admitted again, and sessions on it are others.
        let answer = run(connection, &statements.admit, &admitted, until, context).await?;
        let answer = answer.map_err(SqlFailure::of_opening)?;
        if is_recorded(&answer) {
            return Ok(());
        }
    }
    let message = "the server starts anew again and again, or the table forgets its sessions";
    Err(SqlCause::Unfit(message.to_owned()).into())
}

/// Deletes the record of an ended session whose holders have been notified, so that other clients need
/// not wait for them if the server restarts. The deletion may already be running.
pub(super) async fn forget_later(context: &SessionContext, session: LeaseId) {
    let until = Instant::now() + context.timeout;
    loop {
        let args = Args::new().with(Args::SESSION_ID, &session.as_bytes()[..]);
        let sql = &context.statements.start.forget;
        let Err(failure) = context.control(sql, args).await else {
            return;
        };
        let is_refused = failure
            .class()
            .is_some_and(|class| !class.ends_connection());
        if is_refused || until <= Instant::now() {
            tracing::debug!(cause = %failure.cause, "the record of a session that ended was not deleted");
            return;
        }
        sleep(FORGET_AGAIN).await;
    }
}

/// Runs a message before a session is open, which ends at `until`.
pub(super) async fn run(
    connection: &mut ServerConnection,
    sql: &Sql,
    args: &Args,
    until: Instant,
    context: &SessionContext,
) -> Result<Result<QueryResult, DbError>, SqlFailure> {
    let done = timeout_at(until, connection.run(sql, args.values())).await;
    done.map_err(|_| context.target.silent(context.request_timeout).into())
}

/// The text of a row that has nothing else.
pub(crate) fn first_text(answer: &QueryResult) -> Vec<u8> {
    let text = answer.rows.last().and_then(|row| row.first()?.bytes());
    text.unwrap_or_default().to_vec()
}

/// Whether the session has its record, by the second number of the last row.
pub(super) fn is_recorded(answer: &QueryResult) -> bool {
    answer.last_int(1).is_some_and(|count| count > 0)
}

/// How often others may admit the start of a server, or the server may start, in one attempt.
const ATTEMPTS: u32 = 3;

/// Backoff before the record of a session is deleted once more.
const FORGET_AGAIN: Duration = Duration::from_millis(200);

/// Starts of servers that a process remembers.
const MAX_STARTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn start(admitted: Option<&str>) -> Start {
        Start {
            current: b"2".to_vec(),
            admitted: admitted.map(|start| start.as_bytes().to_vec()),
            lineage: b"data".to_vec(),
            longest: Duration::from_secs(30),
            open: Duration::from_secs(10),
            is_durable: true,
            witnessed: Duration::ZERO,
            version: 0,
        }
    }

    #[test]
    fn a_start_is_admitted_when_no_client_believes_in_earlier_sessions() {
        // The admitted start, the timeout of open sessions, whether the server is durable, the lineage
        // and the seconds to wait.
        let cases = [
            (None, 10, true, "data", None),
            (Some("2"), 10, true, "data", None),
            (Some("1"), 10, true, "data", Some(7)),
            // A copy of the data, or what cannot be known for one.
            (Some("1"), 10, true, "copy", Some(27)),
            (Some("1"), 10, true, "", Some(27)),
            (Some("1"), 10, false, "data", Some(27)),
            (Some("1"), 3, true, "data", None),
            (Some("1"), 0, true, "data", None),
        ];
        for (admitted, open, is_durable, lineage, left) in cases {
            let start = Start {
                open: Duration::from_secs(open),
                is_durable,
                ..start(admitted)
            };
            let found = start.time_left(lineage.as_bytes(), Duration::from_secs(3));
            assert_eq!(found, left.map(Duration::from_secs), "{start:?}");
        }
    }

    #[test]
    fn the_time_counts_from_the_first_sight_on_this_machine() {
        let mut seen = start(Some("the one before, of this test"));
        let first = seen.waited();
        assert!(first < Duration::from_secs(1), "{first:?}");
        while seen.waited() < first + Duration::from_millis(5) {
            std::thread::yield_now();
        }
        seen.witnessed = Duration::from_secs(5);
        assert_eq!(seen.waited(), Duration::from_secs(5));
        assert_eq!(start(Some("2")).waited(), Duration::ZERO);
        let elsewhere = Start {
            current: b"3".to_vec(),
            ..start(Some("the one before, of this test"))
        };
        assert!(elsewhere.waited() < Duration::from_secs(5));
    }

    #[test]
    fn the_time_counts_anew_when_the_same_starts_meet_again() {
        let seen = start(Some("the one that comes back, of this test"));
        while seen.waited() < Duration::from_millis(50) {
            std::thread::yield_now();
        }
        let again = Start {
            version: 2,
            ..seen.clone()
        };
        assert!(again.waited() < seen.waited());
    }
}
