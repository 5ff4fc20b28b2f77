use std::fmt;

/// A number that grows with every holder of a key.
///
/// Send it with each write to the protected resource, and let the resource refuse a token smaller than the
/// largest one it has seen. A holder that was paused beyond its lease then cannot overwrite the work of
/// its successor. Tokens of one key increase strictly from holder to holder, across release, crash,
/// restart and expiry; [`Capabilities::fencing`](crate::Capabilities) states how far a backend guarantees
/// that. Holders that do not exclude each other, such as readers, may have the same token. Tokens of
/// different keys are not comparable.
///
/// A token fits into 63 bits, so that SQL databases can store it in a signed `BIGINT`.
///
/// # Examples
///
/// ```
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = polylock_core::memory::Memory::new();
/// let first = locks.lock("orders/42").await?;
/// let old = first.fencing_token().ok_or("the backend has no tokens")?;
/// first.release().await?;
///
/// let second = locks.lock("orders/42").await?;
/// let new = second.fencing_token().ok_or("the backend has no tokens")?;
/// assert!(old < new); // a write with `old` is refused once one with `new` has arrived
/// let column = i64::try_from(new.value())?; // fits into a BIGINT
/// # assert!(column > 0);
/// # Ok(()) }
/// ```
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
