use polylock_core::Result;

use crate::dialect::SqlName;

/// The table in the database of the caller's connection.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[expect(
    unnameable_types,
    reason = "it stands in a trait that no other crate implements"
)]
pub struct QualifiedTable {
    schema: Option<SqlName>,
    table: SqlName,
}

impl QualifiedTable {
    pub(super) fn set_schema(&mut self, name: &str) -> Result<()> {
        self.schema = Some(SqlName::schema(name)?);
        Ok(())
    }

    pub(super) fn set_table(&mut self, name: &str) -> Result<()> {
        self.table = SqlName::table(name)?;
        Ok(())
    }

    /// The name of the table for people.
    pub(super) fn name(&self) -> &str {
        self.table.as_str()
    }

    /// The table within SQL text, in the marks that the database quotes names with; no name has
    /// such a mark in it.
    pub(super) fn quoted(&self, mark: char, suffix: &str) -> String {
        let table = self.table.as_str();
        match &self.schema {
            Some(schema) => {
                let schema = schema.as_str();
                format!("{mark}{schema}{mark}.{mark}{table}{suffix}{mark}")
            }
            None => format!("{mark}{table}{suffix}{mark}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_one_by_one() {
        let mut place = QualifiedTable::default();
        assert_eq!(place.quoted('"', ""), "\"polylock_locks\"");
        place.set_schema("shop").unwrap();
        place.set_table("locks").unwrap();
        assert_eq!(place.quoted('`', "_fences"), "`shop`.`locks_fences`");
        place.set_table("a`b").unwrap_err();
        place.set_schema("a`b").unwrap_err();
    }
}
