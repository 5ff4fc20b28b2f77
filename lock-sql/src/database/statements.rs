use std::sync::Arc;

use super::codec::COLUMNS;
use crate::wire::{Sql, SqlValue, hex};

/// The statements of `mode=lease` for one table: each is a transaction by itself, and reads the clock
/// of the database.
///
/// All but `insert` and `list` begin with the key of the lock.
pub(crate) struct LeaseStatements {
    /// Acquires a free lock; then id, label and ttl.
    pub(crate) take: Arc<Sql>,
    /// The same for the first waiter in the queue, where there are notifications, and frees its place; then
    /// the ticket.
    pub(crate) take_in_turn: Option<Arc<Sql>>,
    /// Releases an exclusive lock; then the id and, where there are notifications, the topic.
    pub(crate) release: Arc<Sql>,
    /// Frees a slot of a shared lock, whatever the other holders do meanwhile; then as for `release`.
    pub(crate) leave: Arc<Sql>,
    /// Draws tokens for the exclusive holder; then the id.
    pub(crate) reserve: Arc<Sql>,
    /// Gives an exclusive lease another id, and renews it; then the id, the new one and the ttl.
    pub(crate) adopt: Arc<Sql>,
    /// Makes a row without a holder, unless it exists.
    pub(crate) insert: Arc<Sql>,
    /// Reads the clock and the rows of a key.
    pub(crate) load: Arc<Sql>,
    /// Requests a notification at the release, where there are notifications.
    pub(crate) want: Option<Arc<Sql>>,
    /// Keeps a free lock for the queue, if `enter_queue` does not; then for how long. The statements of the
    /// queue change no version, so that concurrent decisions need not be repeated.
    pub(crate) note_queue: Option<Arc<Sql>>,
    /// Takes a free slot of the queue, or keeps it; then the slot, the ticket and for how long.
    pub(crate) enter_queue: Arc<Sql>,
    /// Frees the slot of a ticket; then the ticket.
    pub(crate) leave_queue: Arc<Sql>,
    /// Reads the rows that are held, from one key up to another.
    pub(crate) list: Arc<Sql>,

    /// Renews exclusive leases.
    pub(crate) renew: RenewalStatements,
    /// Renews shared leases, and changes the version of their keys.
    pub(crate) renew_shared: RenewalStatements,
    /// Reads: key.
    pub(crate) load_many: Many,
    /// Writes the rows of keys that still have their version: key, version, slot, and what is written.
    pub(crate) store: Many,
    /// The same for one key, and notifies the waiters; then the topic.
    pub(crate) store_and_notify: Many,
}

/// The statements that renew leases of one kind: key, id, ttl, and 1 where no lease becomes shorter, else
/// 0.
pub(crate) struct RenewalStatements {
    /// Leaves out the leases whose rows are locked, and waits for none.
    pub(crate) free: Many,
    /// For one key: waits for its first row.
    pub(crate) any: Many,
    /// How many rows are written for a lease.
    pub(crate) rows: usize,
}

impl RenewalStatements {
    /// What a database counts when it has renewed so many leases, each of another key.
    pub(crate) fn counted(&self, leases: usize) -> u64 {
        self.free.counted(self.rows * leases)
    }
}

/// A statement for several rows of values.
pub(crate) enum Many {
    /// With one argument for each column: the text of an array.
    Arrays(Arc<Sql>),
    /// With the rows in its text, between these. Each number of rows is another text, so it is prepared
    /// only where there are few.
    Rows {
        before: String,
        columns: Vec<&'static str>,
        after: String,
        is_prepared: bool,
    },
}

impl Many {
    /// Has the rows in its text prepared, for a statement that has few.
    pub(crate) fn prepared(mut self) -> Self {
        if let Self::Rows { is_prepared, .. } = &mut self {
            *is_prepared = true;
        }
        self
    }

    /// How many rows a database counts when it has written so many that were there before.
    pub(crate) fn counted(&self, rows: usize) -> u64 {
        match self {
            Self::Arrays(_) => rows as u64,
            // A row of `INSERT .. ON DUPLICATE KEY UPDATE` that was changed counts twice.
            Self::Rows { .. } => 2 * rows as u64,
        }
    }

    /// The statement for these rows, and its arguments.
    pub(crate) fn with(&self, rows: &[Vec<SqlValue>]) -> (Arc<Sql>, Vec<SqlValue>) {
        match self {
            Self::Arrays(sql) => (Arc::clone(sql), arrays(rows)),
            Self::Rows {
                before,
                columns,
                after,
                is_prepared,
            } => {
                let derived = derived(columns, rows.len());
                let text = format!("{before}({derived}) d{after}");
                let sql = match is_prepared {
                    true => Sql::prepared(text),
                    false => Sql::new(text),
                };
                (sql, rows.concat())
            }
        }
    }
}

/// The columns of rows, each as the text of an array.
fn arrays(rows: &[Vec<SqlValue>]) -> Vec<SqlValue> {
    let width = rows.first().map_or(0, Vec::len);
    let mut columns = vec![String::from("{"); width];
    for row in rows {
        for (column, value) in columns.iter_mut().zip(row) {
            if column.len() > 1 {
                column.push(',');
            }
            match value {
                SqlValue::Null => column.push_str("NULL"),
                SqlValue::Int(number) => column.push_str(&number.to_string()),
                SqlValue::Bytes(bytes) => {
                    column.push_str(r#""\\x"#);
                    column.push_str(&hex(bytes));
                    column.push('"');
                }
            }
        }
    }
    columns
        .into_iter()
        .map(|column| SqlValue::from(column + "}"))
        .collect()
}

/// Rows of arguments as a table.
fn derived(columns: &[&str], rows: usize) -> String {
    let select = |row: usize| {
        let first = row * columns.len() + 1;
        let values = columns.iter().enumerate().map(|(at, column)| {
            let name = if row == 0 {
                format!(" AS {column}")
            } else {
                String::new()
            };
            format!("{{{}}}{name}", first + at)
        });
        format!("SELECT {}", values.collect::<Vec<_>>().join(", "))
    };
    (0..rows)
        .map(select)
        .collect::<Vec<_>>()
        .join(" UNION ALL ")
}

/// Fills a template: `now` reads the clock, `moment` is the time that a statement has read, and `own` are
/// the parts that only this database has.
pub(crate) fn fill(
    template: &str,
    table: &str,
    (now, moment): (&str, &str),
    own: &[(&str, &str)],
) -> String {
    let unqueued = format!("(l.queued_until <= %moment% OR l.queued_until > %moment% + {FAR})");
    let (overtaken, further) = (OVERTAKEN.to_string(), FURTHER_TOKENS.to_string());
    // A part may have later ones in it.
    let common = [
        ("%end%", "%moment% + {4}"),
        ("%free%", "l.sharers = 0 AND %unheld%"),
        ("%unheld%", "(l.id IS NULL OR l.expires_at <= %moment%)"),
        ("%alive%", "l.expires_at > %moment%"),
        ("%unqueued%", &unqueued),
        (
            "%renewed_ttl%",
            "CASE WHEN %kept% THEN l.ttl ELSE %longer% END",
        ),
        (
            "%renewed_end%",
            "CASE WHEN %kept% THEN l.expires_at ELSE %moment% + %longer% END",
        ),
        ("%kept%", KEPT),
        ("%longer%", LONGER),
        ("%overtaken%", &overtaken),
        ("%drawn%", "GREATEST(l.last_token + 1, %moment%)"),
        ("%further%", &further),
        ("%moment%", moment),
        ("%now%", now),
        ("%columns%", &columns()),
        ("%table%", table),
    ];
    let parts = own.iter().chain(&common);
    let filled = parts.fold(template.to_owned(), |text, (name, part)| {
        text.replace(name, part)
    });
    filled.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The ttl of a renewed lease. A clock that was set back does not extend it beyond its former ttl.
const LONGER: &str = "GREATEST(d.ttl, LEAST(l.expires_at - %moment%, l.ttl) * d.least)";

/// Whether a renewal that began later has written an end that is late enough for this one.
const KEPT: &str = "d.least = 1 AND l.expires_at >= %moment% + d.ttl
    AND l.expires_at - l.ttl BETWEEN %moment% AND %moment% + %overtaken%";

pub(crate) const LOAD: &str =
    "SELECT %now%, %columns% FROM %table% l WHERE l.kind = 1 AND l.lock_key = {1} AND {0}";

pub(crate) const LIST: &str = "
SELECT %now%, %columns% FROM %table% l
WHERE l.kind = 1 AND l.lock_key >= {1} AND l.lock_key < {2} AND l.id IS NOT NULL AND {0}
ORDER BY l.lock_key";

pub(crate) const LEAVE_QUEUE: &str = "
UPDATE %table% SET id = NULL WHERE kind = 1 AND lock_key = {1} AND slot > 0 AND id = {2} AND {0}";

/// What is read of a row.
fn columns() -> String {
    COLUMNS.map(|column| format!("l.{column}")).join(", ")
}

/// By how many microseconds a renewal can have overtaken another one of its lease. One that began
/// later than that began by a clock that has been set back since.
const OVERTAKEN: u64 = 60_000_000;

/// The same in microseconds as [`FAR`](crate::table::FAR) of the table.
pub(crate) const FAR: u128 = crate::table::FAR.as_micros();

/// How many tokens come after the first one of an exclusive holder.
pub(crate) const FURTHER_TOKENS: u64 = crate::table::TOKENS_AT_ONCE - 1;
