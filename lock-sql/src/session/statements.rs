//! The statements of a session and the codes in their replies; [`dialect`](crate::dialect) has the text.

use std::sync::Arc;

use crate::wire::{QueryResult, Sql};

/// The statements of one mode on one database.
///
/// All of them take the same arguments, and each uses some; see [`Args`](super::args::Args).
#[derive(Default)]
pub(crate) struct SessionStatements {
    /// Sets up a new connection, and records the session if the start of the server is admitted. The
    /// last row has the server's number of the session, whether it is recorded, the ends of the
    /// connection, and, from servers that can become read-only, whether they are. The number is
    /// [`ELSEWHERE`](got::ELSEWHERE) if the session is that of another client, which has locks in it.
    pub(crate) setup: Arc<Sql>,
    /// Settings that not every server has; an error is none.
    pub(crate) setup_more: Option<Arc<Sql>>,
    /// One attempt for an exclusive or a shared lock.
    pub(crate) try_take: [Arc<Sql>; 2],
    /// The same with a wait.
    pub(crate) wait_take: [Arc<Sql>; 2],
    /// Releases a lock, also one that a failed acquisition may have left; 0: it was not held. A release or downgrade that
    /// reaches another session of a server says so, except that of a row lock on PostgreSQL: see [`is_elsewhere`]. In
    /// advisory mode it changes nothing there, where another client may have the lock.
    pub(crate) release: [Arc<Sql>; 2],
    /// The same for a lock with a record of its holder that would outlive it, in a session without other
    /// locks.
    pub(crate) release_recorded: [Arc<Sql>; 2],
    /// Clears the record of a holder after its release from another connection, where sessions have
    /// several locks: a statement that waits for the table would stop the probes of all.
    pub(crate) clear_record: Option<[Arc<Sql>; 2]>,
    /// Makes an exclusive lock a shared one, where the database can.
    pub(crate) downgrade: Option<Arc<Sql>>,
    /// For servers that start anew.
    pub(crate) start: StartTexts,
    /// Asks whether the session is there: the last row has the server's number of it, and, from servers
    /// that can become read-only, whether they are.
    pub(crate) probe: Arc<Sql>,
    /// Ends the wait of another session.
    pub(crate) cancel: Arc<Sql>,
    /// Makes the row of a key, where a row is locked.
    pub(crate) seed: Arc<Sql>,
    /// Keeps new shared holders out while an exclusive request waits, if the server would admit them.
    pub(crate) claim: Option<Arc<Sql>>,
    /// Ends the claim of a waiter that has the lock.
    pub(crate) unclaim: Option<Arc<Sql>>,
    /// Draws a block of tokens for hand-overs in the session that holds the lock; the last row has the
    /// first and the last one, and of another session [`ELSEWHERE`](got::ELSEWHERE) in place of the first.
    pub(crate) draw: Arc<Sql>,
    /// Records an exclusive holder, unless a later one is recorded: the row has the largest token of those that
    /// were recorded.
    pub(crate) record: Arc<Sql>,
    /// Adds a shared holder, unless a later exclusive one is recorded.
    pub(crate) record_shared: Arc<Sql>,
    /// Reads the records of shared holders, in rows of two columns: the key of the row, and the record. After
    /// them come the ids of the sessions on the start of the server, in rows of one. There are no records
    /// before the start is admitted.
    pub(crate) readers: Arc<Sql>,
    /// Removes shared holders from the record of a key: an object has their ids as names, and no values.
    pub(crate) forget_readers: Arc<Sql>,
    /// Reads the records of locks that may be held.
    pub(crate) list: Arc<Sql>,
    pub(crate) inspect: Arc<Sql>,
    /// Reads the ids of the holders whose locks were broken, for a list of keys that follows.
    pub(crate) broken: String,
    /// Counts the existing sessions that hold the lock of a record.
    pub(crate) alive: Arc<Sql>,
    pub(crate) mark_broken: Arc<Sql>,
    pub(crate) terminate: Arc<Sql>,
}

/// The statements for the starts of a server.
#[derive(Debug, Default)]
pub(crate) struct StartTexts {
    /// Reads what the table knows of the start of the server; the last row is a
    /// [`Start`](super::server_age::Start).
    pub(crate) read: Arc<Sql>,
    /// Names the data of the server, and its position among copies of that data. The server may refuse
    /// it.
    pub(crate) lineage: Arc<Sql>,
    /// Admits the start of the server in place of the one that was read, and records the session.
    pub(crate) admit: Arc<Sql>,
    /// Notes when a client on this machine found the server restarted.
    pub(crate) witness: Arc<Sql>,
    /// Deletes the record of a session.
    pub(crate) forget: Arc<Sql>,
    /// Deletes the records of sessions that have ended, once the start of the server is admitted.
    pub(crate) sweep: Arc<Sql>,
}

/// The statements about the records of holders that are the same on both databases. `name` is the
/// column that has the key, `alive` counts the sessions that hold what a record says, `text` is
/// `{14}` as text, and `now` is the clock.
pub(crate) fn of_records(
    table: &str,
    (kind, name): (u8, &str),
    alive: &str,
    (text, now): (&str, &str),
) -> SessionStatements {
    let read = format!(
        "SELECT r.{name}, r.id, r.token, r.label, r.acquired_at, r.session, r.session_began,
             r.drawn_by, r.shared, CASE WHEN r.id IS NULL THEN 0 ELSE {alive} END
         FROM {table} r WHERE r.kind = {kind}"
    );
    SessionStatements {
        list: Sql::prepared(format!(
            "{read} AND r.{name} >= {{1}} AND r.{name} < {{15}}
                 AND (r.id IS NOT NULL OR r.shared IS NOT NULL)
             AND {{0}} ORDER BY r.{name}"
        )),
        inspect: Sql::prepared(format!("{read} AND r.lock_key = {{1}} AND {{0}}")),
        broken: format!(
            "SELECT broken_id FROM {table}
             WHERE kind = {kind} AND slot = 0 AND broken_id IS NOT NULL AND lock_key IN"
        ),
        mark_broken: Sql::prepared(format!(
            "UPDATE {table} SET broken_id = {{7}}, broken_reason = {text}, changed_at = {now}
             WHERE kind = {kind} AND lock_key = {{1}} AND slot = 0 AND {{0}}"
        )),
        ..SessionStatements::default()
    }
}

/// Rows without a holder are deleted later, by clients that may delete.
pub(crate) fn forget_holder(table: &str, kind: u8) -> String {
    format!(
        "UPDATE {table} SET id = NULL
         WHERE kind = {kind} AND lock_key = {{1}} AND slot = 0 AND id = {{7}}"
    )
}

/// The result codes of an acquisition.
pub(crate) mod got {
    /// In the last column: the row of the key is locked.
    pub(crate) const TAKEN: i64 = 7_205_759;
    /// In place of a token: another session holds the lock.
    pub(crate) const NOT: i64 = 0;
    /// In place of a token: the statement ran in another session of the server.
    pub(crate) const ELSEWHERE: i64 = -2;
    /// In place of a token: the server gave up.
    pub(crate) const INTERRUPTED: i64 = -3;
}

/// The error of advisory mode when a statement runs in another session.
pub(crate) const SHARES_SESSIONS: &str =
    "a transaction pooler is in the path, where locks of sessions do not exclude; use mode=lease";

/// Whether a release or a downgrade ran in another session of a server, where the client has no lock.
pub(crate) fn is_elsewhere(released: &QueryResult) -> bool {
    released.int(0) == Some(got::ELSEWHERE)
}

/// The columns of the last row that a take answers with.
pub(crate) mod column {
    pub(crate) const TOKEN: usize = 0;
    /// Microseconds from the arrival of the message to the answer, if it waits.
    pub(crate) const ELAPSED: usize = 1;
    pub(crate) const SESSION: usize = 2;
    /// When the transaction began, where that distinguishes one hold from the next.
    pub(crate) const BEGAN: usize = 3;
    /// Whether an exclusive request waits, where that is queried.
    pub(crate) const CLAIMED: usize = 4;
    /// Whether the session is recorded on the start of the server, where each transaction may meet another
    /// server.
    pub(crate) const ADMITTED: usize = 5;
}
