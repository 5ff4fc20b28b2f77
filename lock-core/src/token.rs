use std::fmt;

/// A number that grows with every holder of a key.
///
/// Send it with each write to the protected resource, and let the resource refuse a number smaller
/// than the largest one it has seen: then a holder that was paused beyond its lease cannot undo
/// what its successor did. Tokens of one key increase strictly over holders, across release, crash,
/// restart and expiry; how far that reaches on a backend is stated by
/// [`Capabilities::fencing`](crate::Capabilities). Holders that do not exclude each other, such as
/// readers, may have the same token. Tokens of different keys are not comparable.
///
/// A token fits into 63 bits, so that SQL databases can store it in a signed `BIGINT`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Wraps the number that a backend issued.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number to store or compare.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}
