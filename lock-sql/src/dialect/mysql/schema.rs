use super::tokens;
use crate::schema::LAYOUT;

/// Makes the table, and the row that says what it means; does nothing to one that is there.
///
/// Keys are bytes, which have no collation. A label is a name of a machine, of a user, of a program
/// and a note, each percent-encoded.
pub(crate) fn create(table: &str) -> String {
    format!(
        "{}
CREATE TABLE IF NOT EXISTS {table} (
  kind          SMALLINT       NOT NULL,
  lock_key      VARBINARY(513) NOT NULL,
  slot          BIGINT         NOT NULL DEFAULT 0,
  name          VARBINARY(513),
  last_token    BIGINT         NOT NULL DEFAULT 0,
  drawn_by      VARBINARY(64),
  id            VARBINARY(16),
  token         BIGINT         NOT NULL DEFAULT 0,
  permits       BIGINT         NOT NULL DEFAULT 0,
  label         VARCHAR(4000)  NOT NULL DEFAULT '',
  acquired_at   BIGINT         NOT NULL DEFAULT 0,
  ttl           BIGINT         NOT NULL DEFAULT 0,
  expires_at    BIGINT         NOT NULL DEFAULT 0,
  sharers       BIGINT         NOT NULL DEFAULT 0,
  queued_until  BIGINT         NOT NULL DEFAULT 0,
  shared        LONGTEXT,
  claimed_until BIGINT         NOT NULL DEFAULT 0,
  wanted_until  BIGINT         NOT NULL DEFAULT 0,
  version       BIGINT         NOT NULL DEFAULT 0,
  session       BIGINT         NOT NULL DEFAULT 0,
  session_began BIGINT         NOT NULL DEFAULT 0,
  broken_id     BLOB,
  broken_reason TEXT,
  changed_at    BIGINT         NOT NULL DEFAULT 0,
  PRIMARY KEY (kind, lock_key, slot)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
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
  ON DUPLICATE KEY UPDATE token = token"
    )
}

/// The columns of a table that may be anybody's; MySQL knows no owner.
pub(crate) fn about(table: &str) -> String {
    let name = table.trim_matches('`');
    format!(
        "SELECT CAST(GROUP_CONCAT(column_name ORDER BY ordinal_position SEPARATOR ', ') AS CHAR), NULL
           FROM information_schema.columns
          WHERE table_schema = DATABASE() AND table_name = '{name}'"
    )
}

/// Reads it.
pub(crate) fn layout(table: &str) -> String {
    format!("SELECT token FROM {table} WHERE kind = 0 AND lock_key = ''")
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
