/// An argument or a result of a statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum SqlValue {
    Null,
    Int(i64),
    /// Bytes, and text as UTF-8.
    Bytes(Vec<u8>),
}

impl SqlValue {
    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Null | Self::Bytes(_) => None,
        }
    }

    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Null | Self::Int(_) => None,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

/// The result of one message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct QueryResult {
    /// The rows of all its statements, in their order.
    pub(crate) rows: Vec<Vec<SqlValue>>,
    /// How many rows were changed; on MySQL, how many rows matched.
    pub(crate) affected: u64,
    /// What `LAST_INSERT_ID(..)` was set to; MySQL only.
    pub(crate) last_id: u64,
}

impl QueryResult {
    /// A number of the first row.
    pub(crate) fn int(&self, column: usize) -> Option<i64> {
        self.rows.first()?.get(column)?.int()
    }

    /// The number in a column of the last row.
    pub(crate) fn last_int(&self, column: usize) -> Option<i64> {
        self.rows.last()?.get(column)?.int()
    }
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// Larger numbers than a database has mean "never" and "no more" alike.
impl From<u64> for SqlValue {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<Vec<u8>> for SqlValue {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&[u8]> for SqlValue {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

impl From<String> for SqlValue {
    fn from(text: String) -> Self {
        Self::Bytes(text.into_bytes())
    }
}

impl<T: Into<Self>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
