use super::tokens;
use crate::dialect::table;
pub(crate) use crate::dialect::table::{COLUMNS, layout};

/// Makes the table, and the row that says what it means; does nothing to one that is there.
///
/// A row that changes stays on its page, where there is room for it: no index is touched.
pub(crate) fn create(table: &str) -> String {
    format!(
        "{} WITH (fillfactor = 70);
{}
{};
",
        table::create(table, |column| column.1),
        tokens::create(table),
        describe(table)
    )
}

/// Writes the row that says what the table means, unless it is there.
pub(crate) fn describe(table: &str) -> String {
    format!(
        "{}\n  ON CONFLICT (kind, lock_key, slot) DO NOTHING",
        table::describe(table)
    )
}

/// The columns and the owner of a table of any origin.
pub(crate) fn about(table: &str) -> String {
    let name = table.replace('\'', "''");
    format!(
        "SELECT string_agg(attname::text, ', ' ORDER BY attnum), pg_get_userbyid(relowner)::text
           FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
          WHERE pg_class.oid = to_regclass('{name}') AND attnum > 0 AND NOT attisdropped
          GROUP BY relowner"
    )
}
