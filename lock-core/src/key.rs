use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, Result};

/// The name of a lock.
///
/// A key is 1 to [`LockKey::MAX_LEN`] bytes of UTF-8 without control characters. There are no other
/// rules: `/`, `..`, quotes, emoji and right-to-left text reach every backend unchanged. Two keys
/// are the same lock if and only if their bytes are equal; `é` as one code point and as two are two
/// locks.
///
/// Cloning is cheap.
///
/// # Examples
///
/// ```
/// use polylock_core::{ErrorKind, LockKey};
///
/// let key = LockKey::new("orders/42")?;
/// assert_eq!(key.as_str(), "orders/42");
/// assert_eq!(LockKey::new("").unwrap_err().kind(), ErrorKind::InvalidKey);
/// # Ok::<(), polylock_core::Error>(())
/// ```
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LockKey(Arc<str>);

impl LockKey {
    /// Longest key that a user may name, in bytes.
    pub const MAX_LEN: usize = 256;

    /// Longest namespace that [`Prefix`](crate::layers::Prefix) puts in front of a key, in bytes.
    pub const MAX_NAMESPACE_LEN: usize = 64;

    /// Longest key that a backend has to carry: namespace, colon and key, in bytes.
    pub const MAX_STORED_LEN: usize = Self::MAX_NAMESPACE_LEN + 1 + Self::MAX_LEN;

    /// Checks a name and makes it a key.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`](crate::ErrorKind::InvalidKey) if the name is empty, longer than
    /// [`LockKey::MAX_LEN`] bytes or contains a control character (`U+0000` to `U+001F`, `U+007F`
    /// to `U+009F`).
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self> {
        let name = name.into();
        check(&name, Self::MAX_LEN)?;
        Ok(Self(name))
    }

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as bytes, which is what backends store and compare.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Puts `namespace` and a colon in front; the result may be longer than a user's key.
    pub(crate) fn within(&self, namespace: &str) -> Self {
        Self([namespace, ":", &self.0].concat().into())
    }

    /// Rebuilds a key that a backend stored, which may carry a namespace.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`](crate::ErrorKind::InvalidKey) if it could not have been stored by a
    /// `DistributedLock`: bytes that are not UTF-8, control characters, more than
    /// [`LockKey::MAX_STORED_LEN`] bytes.
    pub fn from_stored(bytes: &[u8]) -> Result<Self> {
        let name = std::str::from_utf8(bytes)
            .map_err(|e| Error::invalid_key("a stored key is not UTF-8").with_source(e))?;
        check(name, Self::MAX_STORED_LEN)?;
        Ok(Self(name.into()))
    }

    /// Escapes a key, or the beginning of one, as one name of a path: everything but ASCII letters, digits
    /// and `-.:_~`. For implementors.
    ///
    /// Each key has one spelling. The escaped prefix of a key is a prefix of the escaped key.
    #[must_use]
    pub fn escape(key: &str) -> String {
        utf8_percent_encode(key, ESCAPED).to_string()
    }

    /// Returns the key that [`escape`](Self::escape) spells like this, if there is one. For implementors.
    #[must_use]
    pub fn unescape(name: &str) -> Option<Self> {
        let key: Vec<u8> = percent_decode_str(name).collect();
        let key = Self::from_stored(&key).ok()?;
        // Another spelling of the same key is another program's.
        (Self::escape(key.as_str()) == name).then_some(key)
    }
}

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b':')
    .remove(b'_')
    .remove(b'~');

fn check(name: &str, max: usize) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid_key("a lock key must not be empty"));
    }
    if name.len() > max {
        return Err(Error::invalid_key(format!(
            "a lock key has at most {max} bytes, this one has {}; hash the long part of it",
            name.len()
        )));
    }
    if let Some((at, c)) = name.char_indices().find(|(_, c)| c.is_control()) {
        return Err(Error::invalid_key(format!(
            "a lock key must not contain control characters, this one has U+{:04X} at byte {at}",
            u32::from(c)
        )));
    }
    Ok(())
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl AsRef<str> for LockKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for LockKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&Self> for LockKey {
    fn from(key: &Self) -> Self {
        key.clone()
    }
}

impl TryFrom<&str> for LockKey {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<String> for LockKey {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<&String> for LockKey {
    type Error = Error;

    fn try_from(name: &String) -> Result<Self> {
        Self::new(name.as_str())
    }
}

/// Lets [`DistributedLockExt`](crate::DistributedLockExt) accept a name or a ready key.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
