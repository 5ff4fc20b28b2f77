use super::tokens;
use crate::schema::LAYOUT;

/// Makes the table, and the row that says what it means; does nothing to one that is there.
///
/// A row that changes stays on its page, where there is room for it: no index is touched.
pub(crate) fn create(table: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (
  kind          smallint NOT NULL,
  lock_key      bytea    NOT NULL,
  slot          bigint   NOT NULL DEFAULT 0,
  name          bytea,
  last_token    bigint   NOT NULL DEFAULT 0,
  drawn_by      bytea,
  id            bytea,
  token         bigint   NOT NULL DEFAULT 0,
  permits       bigint   NOT NULL DEFAULT 0,
  label         text     NOT NULL DEFAULT '',
  acquired_at   bigint   NOT NULL DEFAULT 0,
  ttl           bigint   NOT NULL DEFAULT 0,
  expires_at    bigint   NOT NULL DEFAULT 0,
  sharers       bigint   NOT NULL DEFAULT 0,
  queued_until  bigint   NOT NULL DEFAULT 0,
  shared        text,
  claimed_until bigint   NOT NULL DEFAULT 0,
  wanted_until  bigint   NOT NULL DEFAULT 0,
  version       bigint   NOT NULL DEFAULT 0,
  session       bigint   NOT NULL DEFAULT 0,
  session_began bigint   NOT NULL DEFAULT 0,
  broken_id     bytea,
  broken_reason text,
  changed_at    bigint   NOT NULL DEFAULT 0,
  PRIMARY KEY (kind, lock_key, slot)
) WITH (fillfactor = 70);
{}
{};
",
        tokens::create(table),
        describe(table)
    )
}

/// Writes the row that says what the table means, unless it is there.
pub(crate) fn describe(table: &str) -> String {
    format!(
        "INSERT INTO {table} (kind, lock_key, slot, token) VALUES (0, '', 0, {LAYOUT})
  ON CONFLICT (kind, lock_key, slot) DO NOTHING"
    )
}

/// Reads it.
pub(crate) fn layout(table: &str) -> String {
    format!("SELECT token FROM {table} WHERE kind = 0 AND lock_key = ''::bytea")
}

/// The columns of a table that may be anybody's, and who owns it.
pub(crate) fn about(table: &str) -> String {
    let name = table.replace('\'', "''");
    format!(
        "SELECT string_agg(attname::text, ', ' ORDER BY attnum), pg_get_userbyid(relowner)::text
           FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
          WHERE pg_class.oid = to_regclass('{name}') AND attnum > 0 AND NOT attisdropped
          GROUP BY relowner"
    )
}

/// Of the table, in its order.
pub(crate) const COLUMNS: [&str; 24] = [
    "kind",
    "lock_key",
    "slot",
    "name",
    "last_token",
    "drawn_by",
    "id",
    "token",
    "permits",
    "label",
    "acquired_at",
    "ttl",
    "expires_at",
    "sharers",
    "queued_until",
    "shared",
    "claimed_until",
    "wanted_until",
    "version",
    "session",
    "session_began",
    "broken_id",
    "broken_reason",
    "changed_at",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_those_of_the_table() {
        let text = create("t");
        let lines = text.lines().filter(|line| line.starts_with("  "));
        let made = lines.filter_map(|line| line.split_whitespace().next());
        let made: Vec<_> = made.filter(|word| word.to_lowercase() == *word).collect();
        assert_eq!(made, COLUMNS);
    }
}
