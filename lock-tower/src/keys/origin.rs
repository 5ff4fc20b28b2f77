use std::fmt;

use super::{KeyError, MAX_NAME_LEN};

/// The place in a request that a name comes from, for messages to clients: it comes from the
/// service's configuration, and never from the client.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) kind: &'static str,
    pub(super) name: &'a str,
}

impl Origin<'_> {
    /// Takes the only one of the values. The first of several is never taken silently: software
    /// that reads the last one would work under the lock of another.
    pub(super) fn only<T>(self, values: impl IntoIterator<Item = T>) -> Result<T, KeyError> {
        let mut values = values.into_iter();
        let value = values.next().ok_or_else(|| self.missing("is missing"))?;
        match values.next() {
            Some(_) => Err(self.invalid("is there more than once")),
            None => Ok(value),
        }
    }

    /// Checks that the bytes can be a name.
    pub(super) fn text(self, bytes: &[u8]) -> Result<&str, KeyError> {
        if bytes.is_empty() {
            return Err(self.missing("is empty"));
        }
        if bytes.len() > MAX_NAME_LEN {
            return Err(too_long(&self));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| self.invalid("is not UTF-8"))?;
        match text.contains(char::is_control) {
            true => Err(self.invalid("has control characters")),
            false => Ok(text),
        }
    }

    pub(super) fn missing(self, what: &str) -> KeyError {
        KeyError::Missing(format!("{self} {what}"))
    }

    pub(super) fn invalid(self, what: &str) -> KeyError {
        KeyError::Invalid(format!("{self} {what}"))
    }
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} {}", self.kind, self.name)
    }
}

pub(super) fn too_long(what: &dyn fmt::Display) -> KeyError {
    KeyError::Invalid(format!("{what} has more than {MAX_NAME_LEN} bytes"))
}
