use std::fmt;

use lock_core::engine::{Entropy as _, OsEntropy};

/// Identifies the origin of a response: one number for each time that a request reaches its
/// handler.
///
/// 128 random bits. A fencing token is none: two lock services give the same ones, and some give
/// none at all.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct RunId([u8; 16]);

impl RunId {
    pub(super) fn random() -> Self {
        let mut bytes = [0; 16];
        OsEntropy::default().fill(&mut bytes);
        Self(bytes)
    }

    /// Rebuilds one that was stored.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// What to store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third, fourth, ..] = self.0;
        let head = u32::from_be_bytes([first, second, third, fourth]);
        write!(f, "RunId({head:08x}..)")
    }
}
