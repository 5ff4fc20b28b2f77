//! The table of the locks on a server: one layout, whose types have names of each database.

use crate::schema::LAYOUT;

/// A column, with its type on PostgreSQL and on MySQL.
type Column = (&'static str, &'static str, &'static str);

const COUNT: usize = 24;

/// Keys are bytes, which have no collation. A label is a name of a machine, of a user, of a program
/// and a note, each percent-encoded.
const TABLE: [Column; COUNT] = [
    ("kind", "smallint NOT NULL", "smallint NOT NULL"),
    ("lock_key", "bytea NOT NULL", "varbinary(513) NOT NULL"),
    number("slot"),
    ("name", "bytea", "varbinary(513)"),
    number("last_token"),
    ("drawn_by", "bytea", "varbinary(64)"),
    ("id", "bytea", "varbinary(16)"),
    number("token"),
    number("permits"),
    (
        "label",
        "text NOT NULL DEFAULT ''",
        "varchar(4000) NOT NULL DEFAULT ''",
    ),
    number("acquired_at"),
    number("ttl"),
    number("expires_at"),
    number("sharers"),
    number("queued_until"),
    ("shared", "text", "longtext"),
    number("claimed_until"),
    number("wanted_until"),
    number("version"),
    number("session"),
    number("session_began"),
    ("broken_id", "bytea", "blob"),
    ("broken_reason", "text", "text"),
    number("changed_at"),
];

const fn number(name: &'static str) -> Column {
    let kind = "bigint NOT NULL DEFAULT 0";
    (name, kind, kind)
}

/// The names of its columns, in their order.
pub(crate) const COLUMNS: [&str; COUNT] = {
    let mut names = [""; COUNT];
    let mut at = 0;
    while at < COUNT {
        names[at] = TABLE[at].0;
        at += 1;
    }
    names
};

/// Makes the table, up to what follows its columns.
pub(super) fn create(table: &str, kind: fn(Column) -> &'static str) -> String {
    let columns: String = TABLE
        .iter()
        .map(|column| format!("  {:<13} {},\n", column.0, kind(*column)))
        .collect();
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (\n{columns}  PRIMARY KEY (kind, lock_key, slot)\n)"
    )
}

/// Writes the row that says what the table means, up to what becomes of it if it is there.
pub(super) fn describe(table: &str) -> String {
    format!("INSERT INTO {table} (kind, lock_key, slot, token) VALUES (0, '', 0, {LAYOUT})")
}

/// Reads it.
pub(crate) fn layout(table: &str) -> String {
    format!("SELECT token FROM {table} WHERE kind = 0 AND lock_key = ''")
}
