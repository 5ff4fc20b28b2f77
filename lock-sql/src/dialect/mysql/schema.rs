use super::tokens;
use crate::dialect::table;
pub(crate) use crate::dialect::table::{COLUMNS, layout};

/// Makes the table, and the row that says what it means; does nothing to one that is there.
pub(crate) fn create(table: &str) -> String {
    format!(
        "{}
{} ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
{};
",
        tokens::create(table),
        table::create(table, |column| column.2),
        describe(table)
    )
}

/// Writes the row that says what the table means, unless it is there.
pub(crate) fn describe(table: &str) -> String {
    format!(
        "{}\n  ON DUPLICATE KEY UPDATE token = token",
        table::describe(table)
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
