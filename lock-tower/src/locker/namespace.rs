use lock_core::{Error, ErrorKind, LockKey, Result};

use crate::keys::KeyError;

/// Goes before every key of a locker, so that lockers of different purpose do not meet.
#[derive(Clone, Debug)]
pub(crate) struct Namespace(String);

impl Namespace {
    pub(crate) fn new(name: &str) -> Result<Self> {
        if name.is_empty() || name.len() > 64 || name.contains(|c: char| c == ':' || c.is_control())
        {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                "a namespace has 1 to 64 bytes without colons and control characters",
            ));
        }
        Ok(Self(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of a name, which may be as long as it likes.
    pub(crate) fn key(&self, name: &str) -> Result<LockKey, KeyError> {
        LockKey::new(format!("{}:{name}", self.0))
            .map_err(|e| KeyError::Invalid(e.message().to_owned()))
    }
}
