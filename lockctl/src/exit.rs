//! How `lockctl` ends: one enum for all exit codes.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use polylock::ErrorKind;

/// Why `lockctl` ends, and thereby its exit code.
///
/// The codes are those of `sysexits.h` where that has one, and 79, the first one after them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    /// 78: a URL, an option of it or the environment is wrong, or the backend lacks what is asked.
    Config,
    /// 65: what is stored where the lock would be is no lock.
    Data,
    /// 77: the server refuses the credentials, or they lack a right.
    Denied,
    /// 70: a bug, or an unexpected answer.
    Internal,
    /// 79 or `--lost-exit-code`: the lock was lost before the command began, or while it ran, and it was stopped or
    /// had ended.
    Lost,
    /// 75 or `-E`: the lock is held, and the wait has timed out.
    NotAcquired,
    /// 126: the command cannot be executed.
    NotExecutable,
    /// 127: the command does not exist.
    NotFound,
    /// The code of the command, or one that an option chose.
    Of(u8),
    /// 128 + n: `lockctl` gave up waiting because of signal n, or the command died from it.
    Signaled(i32),
    /// 0: done.
    Success,
    /// 69: the backend cannot be reached, or its database file cannot be opened.
    Unavailable,
    /// 64: the command line is wrong.
    Usage,
}

impl Exit {
    /// The number for the caller.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Config => 78,
            Self::Data => 65,
            Self::Denied => 77,
            Self::Internal => 70,
            Self::Lost => 79,
            Self::NotAcquired => 75,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Of(code) => code,
            Self::Signaled(signal) => u8::try_from(128 + signal).unwrap_or(255),
            Self::Success => 0,
            Self::Unavailable => 69,
            Self::Usage => 64,
        }
    }

    /// What the end of the command means.
    pub(crate) fn of_child(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Of(u8::try_from(code).unwrap_or(255)),
            (None, Some(signal)) => Self::Signaled(signal),
            (None, None) => Self::Internal,
        }
    }

    /// What an error of the given kind means.
    pub(crate) fn of_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Contended => Self::NotAcquired,
            ErrorKind::Denied => Self::Denied,
            ErrorKind::Foreign => Self::Data,
            ErrorKind::InvalidConfig | ErrorKind::Unsupported => Self::Config,
            ErrorKind::InvalidKey | ErrorKind::InvalidRequest => Self::Usage,
            ErrorKind::Lost => Self::Lost,
            ErrorKind::QueueFull | ErrorKind::Unavailable => Self::Unavailable,
            _ => Self::Internal,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_codes_of_sysexits() {
        let codes = [
            (ErrorKind::Contended, 75),
            (ErrorKind::Denied, 77),
            (ErrorKind::Foreign, 65),
            (ErrorKind::InvalidConfig, 78),
            (ErrorKind::InvalidKey, 64),
            (ErrorKind::InvalidRequest, 64),
            (ErrorKind::Lost, 79),
            (ErrorKind::Protocol, 70),
            (ErrorKind::QueueFull, 69),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::Unsupported, 78),
        ];
        for (kind, code) in codes {
            assert_eq!(Exit::of_error(kind).code(), code, "{kind:?}");
        }
    }
}
