//! Checks of fencing tokens at the protected resource.
//!
//! A holder may be paused for longer than its lease, and write after another client has acquired
//! the lock. The resource detects this by the token: it stores the largest token it has seen, and
//! refuses a smaller one with [`StaleToken`].

use std::error::Error as StdError;
use std::fmt;

use crate::token::FencingToken;

/// Refuses a write because a later holder of the lock has written already.
///
/// Nothing was written. The caller has lost its lock and has to acquire it again.
///
/// # Examples
///
/// ```
/// use polylock_core::FencingToken;
/// use polylock_core::fencing::StaleToken;
///
/// /// What the resource does with each write.
/// fn write(newest: &mut FencingToken, token: FencingToken) -> Result<(), StaleToken> {
///     if token < *newest {
///         return Err(StaleToken::new("orders/42", token).with_newest(*newest));
///     }
///     *newest = token;
///     Ok(())
/// }
///
/// let mut newest = FencingToken::new(0);
/// assert_eq!(write(&mut newest, FencingToken::new(9)), Ok(()));
/// let late = write(&mut newest, FencingToken::new(7)).expect_err("9 has written");
/// assert_eq!(late.to_string(), "\"orders/42\" has seen token 9, 7 is stale");
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct StaleToken {
    /// The writer's name for the resource.
    pub resource: String,
    /// The token of the write.
    pub token: FencingToken,
    /// The largest token that the resource has seen, where that is known.
    pub newest: Option<FencingToken>,
}

impl StaleToken {
    /// States that `resource` refuses `token`.
    #[must_use]
    pub fn new(resource: impl Into<String>, token: FencingToken) -> Self {
        Self {
            resource: resource.into(),
            token,
            newest: None,
        }
    }

    /// Adds the token that the resource has seen.
    #[must_use]
    pub fn with_newest(mut self, newest: FencingToken) -> Self {
        self.newest = Some(newest);
        self
    }
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource, token, ..
        } = self;
        match self.newest {
            Some(newest) => {
                write!(f, "{resource:?} has seen token {newest}, {token} is stale")
            }
            None => write!(f, "{resource:?} has seen a newer token, {token} is stale"),
        }
    }
}

impl StdError for StaleToken {}

/// Detects a stale write by the number of rows that a conditional update changed.
///
/// For tables with a token column, whose updates are of the form
/// `UPDATE orders SET state = $3, fence = $1 WHERE id = $2 AND fence <= $1`. A stale token changes
/// no row. A missing row looks the same, so insert the row first. Returns the number of rows.
///
/// # Errors
///
/// [`StaleToken`] if `rows` is 0.
///
/// # Examples
///
/// ```
/// use polylock_core::FencingToken;
/// use polylock_core::fencing::expect_written;
///
/// let token = FencingToken::new(7);
/// assert_eq!(expect_written("orders/42", token, 1), Ok(1));
/// let stale = expect_written("orders/42", token, 0).unwrap_err();
/// assert_eq!(stale.token, token);
/// ```
pub fn expect_written(
    resource: impl Into<String>,
    token: FencingToken,
    rows: u64,
) -> Result<u64, StaleToken> {
    match rows {
        0 => Err(StaleToken::new(resource, token)),
        rows => Ok(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_token_is_stale() {
        let stale = StaleToken::new("orders/42", FencingToken::new(7));
        let says = "\"orders/42\" has seen a newer token, 7 is stale";
        assert_eq!(stale.to_string(), says);
    }
}
