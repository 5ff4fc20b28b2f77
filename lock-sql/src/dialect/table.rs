//! The table of the locks on a server: one layout, whose types have names of each database.

/// What the row of kind 0 says about the meaning of the other ones.
pub(crate) const LAYOUT: i64 = 3;

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
pub(crate) fn columns() -> [&'static str; COUNT] {
    TABLE.map(|(name, ..)| name)
}

/// The statements about the table as a whole.
pub(crate) struct TableTexts {
    /// Makes the table, and the row that says what it means; does nothing to an existing one.
    pub(crate) create: String,
    /// Writes that row, unless it is there.
    pub(crate) describe: String,
    /// Reads it.
    pub(crate) layout: String,
    /// Reads the columns and the owner of a table of any origin; MySQL knows no owner.
    pub(crate) about: String,
}

pub(crate) fn mysql(table: &str) -> TableTexts {
    let describe = format!(
        "{}\n  ON DUPLICATE KEY UPDATE token = token",
        describe(table)
    );
    TableTexts {
        create: format!(
            "{}
{} ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
{describe};
",
            super::mysql::tokens::create(table),
            create(table, |column| column.2),
        ),
        describe,
        layout: layout(table),
        about: format!(
            "SELECT CAST(GROUP_CONCAT(column_name ORDER BY ordinal_position SEPARATOR ', ') AS CHAR), NULL
               FROM information_schema.columns
              WHERE table_schema = DATABASE() AND table_name = '{}'",
            table.trim_matches('`')
        ),
    }
}

/// A row that changes stays on its page, where there is room for it: no index is touched.
pub(crate) fn postgres(table: &str) -> TableTexts {
    let describe = format!(
        "{}\n  ON CONFLICT (kind, lock_key, slot) DO NOTHING",
        describe(table)
    );
    TableTexts {
        create: format!(
            "{} WITH (fillfactor = 70);\n{}\n{describe};\n",
            create(table, |column| column.1),
            super::postgres::tokens::create(table),
        ),
        describe,
        layout: layout(table),
        about: format!(
            "SELECT string_agg(attname::text, ', ' ORDER BY attnum), pg_get_userbyid(relowner)::text
               FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
              WHERE pg_class.oid = to_regclass('{}') AND attnum > 0 AND NOT attisdropped
              GROUP BY relowner",
            table.replace('\'', "''")
        ),
    }
}

fn create(table: &str, kind: fn(Column) -> &'static str) -> String {
    let columns: String = TABLE
        .iter()
        .map(|column| format!("  {:<13} {},\n", column.0, kind(*column)))
        .collect();
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (\n{columns}  PRIMARY KEY (kind, lock_key, slot)\n)"
    )
}

fn describe(table: &str) -> String {
    format!("INSERT INTO {table} (kind, lock_key, slot, token) VALUES (0, '', 0, {LAYOUT})")
}

pub(crate) fn layout(table: &str) -> String {
    format!("SELECT token FROM {table} WHERE kind = 0 AND lock_key = ''")
}
