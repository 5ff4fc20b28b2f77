use std::error::Error;
use std::fmt;

use polylock::ErrorKind;

/// What went wrong with a lock or with a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    kind: String,
    message: String,
}

impl Failure {
    /// A failure of a kind, one or two words by which they are counted, and with a message that
    /// has no secrets in it.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: message.into(),
        }
    }

    /// The failure of something else, with all its causes.
    pub fn of(kind: impl Into<String>, error: &(dyn Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Self::new(kind, message)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What happened.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Says where it happened, before what happened.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

impl From<polylock::Error> for Failure {
    fn from(error: polylock::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Contended => "contended",
            ErrorKind::Denied => "denied",
            ErrorKind::InvalidConfig | ErrorKind::InvalidKey | ErrorKind::InvalidRequest => INVALID,
            ErrorKind::Lost => LOST,
            ErrorKind::Protocol => "protocol",
            ErrorKind::QueueFull => "queue full",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Unsupported => UNSUPPORTED,
            _ => "other",
        };
        Self::of(kind, &error)
    }
}

/// Kind of what was asked for wrongly.
pub(crate) const INVALID: &str = "invalid";
/// Kind of a release where somebody else had the lock already, or nobody.
pub(crate) const LOST: &str = "lost";
/// Kind of a release by a holder that was told before that it holds no more.
pub(crate) const LOST_BEFORE: &str = "lost before";
/// Kind of what a server says of itself, and not of the way to it.
pub(crate) const REFUSED: &str = "refused";
/// Kind of what the target cannot do.
pub(crate) const UNSUPPORTED: &str = "unsupported";
