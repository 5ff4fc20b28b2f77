use std::borrow::Cow;

/// A command or a request that a client sends.
///
/// One for `ZooKeeper` has these words: its name, such as `CREATE`, `DELETE`, `GETCHILDREN` or `PING`,
/// and `OP<number>` where it has none here; its path, or an empty word; the flags of a `CREATE` in
/// decimal digits, `watch` or an empty word for `EXISTS`, `GETDATA` and `GETCHILDREN`, the session in
/// hexadecimal digits for `CONNECT`, `0x0` if it is to be a new one. A `MULTI` has the path and then
/// the name of its first operation. Versions of an operation have one name.
///
/// One for a SQL database is `QUERY` with the text of a message of the simple protocol, `PREPARE` with
/// the text of a statement, or `EXECUTE` with the text of the statement that was prepared. Others have
/// a name alone: for PostgreSQL `STARTUP` and `SYNC`, for MySQL `LOGIN` and `COM<number>`.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Command {
    /// Its words, of which the first is its name.
    pub args: Vec<Vec<u8>>,
    /// The connection, counted from 0 in the order in which the proxy accepted them.
    pub connection: usize,
}

impl Command {
    /// Whether this is its name, in letters of any case.
    pub fn is(&self, name: &str) -> bool {
        self.args
            .first()
            .is_some_and(|first| first.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The word at this place as text, empty if there is none. The name is at 0.
    pub fn arg(&self, at: usize) -> Cow<'_, str> {
        let arg = self.args.get(at).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(arg)
    }

    /// Whether one of its words is this.
    pub fn has(&self, word: impl AsRef<[u8]>) -> bool {
        self.args.iter().any(|arg| arg == word.as_ref())
    }
}
