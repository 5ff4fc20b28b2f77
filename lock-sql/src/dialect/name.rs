use std::fmt;

use polylock_core::{Error, Result};

/// The name of a table or a schema, which is put into SQL text as it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SqlName(String);

impl SqlName {
    pub(crate) fn table(name: impl Into<String>) -> Result<Self> {
        let name = identifier("table", name.into())?;
        if name.to_ascii_lowercase().starts_with("sqlite_") {
            let message = format!("table names that begin with sqlite_ are reserved, not {name:?}");
            return Err(Error::config(message));
        }
        Ok(Self(name))
    }

    pub(crate) fn schema(name: impl Into<String>) -> Result<Self> {
        identifier("schema", name.into()).map(Self)
    }

    /// The schema that every database of PostgreSQL has.
    pub(crate) fn public() -> Self {
        Self("public".to_owned())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The default table.
impl Default for SqlName {
    fn default() -> Self {
        Self("polylock_locks".to_owned())
    }
}

/// Quoted, so that a name may be a word of SQL.
impl fmt::Display for SqlName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

/// The quoted name of the sequence of tokens of a quoted table, beside it.
///
/// Two long names may share a sequence, whose tokens then grow over both tables.
pub(crate) fn sequence(table: &str) -> String {
    let (mark, body) = (&table[table.len() - 1..], &table[..table.len() - 1]);
    let start = body.rfind(mark).map_or(0, |at| at + mark.len());
    let end = body.len().min(start + MAX_LEN - SEQUENCE.len());
    format!("{}{SEQUENCE}{mark}", &body[..end])
}

const SEQUENCE: &str = "_token";

/// Lets names through that mean the same inside quotes of every database.
fn identifier(what: &str, name: String) -> Result<String> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let continues = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if begins && continues && name.len() <= MAX_LEN {
        return Ok(name);
    }
    let message = format!(
        "a {what} name has 1 to {MAX_LEN} letters, digits and underscores, and begins with no \
         digit; {name:?} does not"
    );
    Err(Error::config(message))
}

/// Longest name in bytes; PostgreSQL cuts longer ones.
const MAX_LEN: usize = 63;

#[cfg(test)]
mod tests {
    use polylock_core::ErrorKind;

    use super::*;

    #[test]
    fn a_sequence_is_beside_its_table() {
        assert_eq!(sequence("`locks`"), "`locks_token`");
        assert_eq!(sequence("\"shop\".\"locks\""), "\"shop\".\"locks_token\"");
        let long = sequence(&format!("\"s\".\"{}\"", "x".repeat(63)));
        assert_eq!(long, format!("\"s\".\"{}_token\"", "x".repeat(57)));
    }

    #[test]
    fn a_table_name_is_an_identifier() {
        for name in ["locks", "_l1", "ORDER", &"x".repeat(63)] {
            assert_eq!(SqlName::table(name).unwrap().as_str(), name);
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
            let error = SqlName::table(name.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{name}");
        }
    }
}
