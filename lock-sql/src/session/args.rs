use std::time::Duration;

use crate::wire::SqlValue;

/// The arguments of the statements of a session, by their number.
#[derive(Clone, Debug)]
pub(crate) struct Args([SqlValue; Self::COUNT]);

impl Args {
    /// `{1}`: the key of the rows.
    pub(crate) const ROW_KEY: usize = 1;
    /// `{2}`: the id of the session, which we give it.
    pub(crate) const SESSION_ID: usize = 2;
    /// `{3}`: what the database locks: a number on PostgreSQL, a name on MySQL.
    pub(crate) const LOCK: usize = 3;
    /// `{4}`: the wait, in milliseconds.
    pub(crate) const WAIT: usize = 4;
    /// `{5}`: the version of the start of the server.
    pub(crate) const SEEN: usize = 5;
    /// `{6}`: the server's number of the session.
    pub(crate) const SESSION: usize = 6;
    /// `{7}`: the id of the lease.
    pub(crate) const LEASE: usize = 7;
    /// `{8}`: the label of the holder.
    pub(crate) const LABEL: usize = 8;
    /// `{10}`: the whole key.
    pub(crate) const NAME: usize = 10;
    /// `{11}`: the time-out of the session, in milliseconds.
    pub(crate) const TIMEOUT: usize = 11;
    /// `{12}`: when the transaction of the holder began.
    pub(crate) const BEGAN: usize = 12;
    /// `{13}`: the token of the holder.
    pub(crate) const TOKEN: usize = 13;
    /// `{14}`: a text, such as the reason for which a lock is broken.
    pub(crate) const TEXT: usize = 14;
    /// `{15}`: the end of a range of keys that begins with `{1}`.
    pub(crate) const UP_TO: usize = 15;

    const COUNT: usize = 15;
    const NUMBERS: [usize; 6] = [
        Self::SEEN,
        Self::WAIT,
        Self::SESSION,
        Self::TIMEOUT,
        Self::BEGAN,
        Self::TOKEN,
    ];

    pub(crate) fn new() -> Self {
        let mut values = [const { SqlValue::Null }; Self::COUNT];
        // A null has the type of bytes on PostgreSQL.
        for number in Self::NUMBERS {
            values[number - 1] = SqlValue::Int(0);
        }
        Self(values)
    }

    #[must_use]
    pub(crate) fn with(mut self, number: usize, value: impl Into<SqlValue>) -> Self {
        self.0[number - 1] = value.into();
        self
    }

    pub(crate) fn values(&self) -> &[SqlValue] {
        &self.0
    }

    pub(crate) fn into_vec(self) -> Vec<SqlValue> {
        self.0.into()
    }
}

/// A time as the databases take it, at least one millisecond: none at all means forever there.
pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis())
        .unwrap_or(i64::MAX)
        .clamp(1, 2_000_000_000)
}
