//! SQL text and the quirks of each database; no logic.

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use std::fmt;

use lock_core::{Error, ErrorKind, Result};

/// The name of the table, which is put into SQL text as it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TableName(String);

impl TableName {
    /// Longest name in bytes; PostgreSQL cuts longer ones.
    const MAX_LEN: usize = 63;

    pub(crate) fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let continues = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !begins || !continues || name.len() > Self::MAX_LEN {
            let message = format!(
                "a table name has 1 to {} letters, digits and underscores, and begins with no \
                 digit; {name:?} does not",
                Self::MAX_LEN
            );
            return Err(Error::new(ErrorKind::InvalidConfig, message));
        }
        if name.to_ascii_lowercase().starts_with("sqlite_") {
            let message = format!("table names that begin with sqlite_ are reserved, not {name:?}");
            return Err(Error::new(ErrorKind::InvalidConfig, message));
        }
        Ok(Self(name))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The table of those who name none.
impl Default for TableName {
    fn default() -> Self {
        Self("polylock_locks".to_owned())
    }
}

/// Quoted, so that a name may be a word of SQL.
impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_name_is_an_identifier() {
        for name in ["locks", "_l1", "ORDER", &"x".repeat(63)] {
            assert_eq!(TableName::new(name).unwrap().as_str(), name);
        }
        let wrong = [
            "",
            "1x",
            "a-b",
            "a.b",
            "a b",
            "é",
            "x\"; DROP TABLE y --",
            "SQLite_x",
        ];
        for name in wrong.into_iter().map(str::to_owned).chain(["x".repeat(64)]) {
            let error = TableName::new(name.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{name}");
        }
    }
}
