use std::error::Error as StdError;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, ErrorKind};

/// Why an operation has no result.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    /// Whether the database may have done what it was asked for.
    pub(crate) outcome_unknown: bool,
}

/// What goes wrong with a database. Clonable, because one transaction serves several requests.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error("another connection keeps the database locked")]
    Busy,

    #[error("the database file {path:?} is damaged, or something else than a database")]
    Damaged { path: PathBuf, source: Source },

    #[error("the disk of the database file {path:?} is full")]
    Full { path: PathBuf, source: Source },

    #[error("the database file {path:?} cannot be read or written")]
    Io { path: PathBuf, source: Source },

    #[error("table {table:?} has layout {found}, and this version knows layout {known}")]
    Layout {
        table: String,
        found: i64,
        known: i64,
    },

    #[error("table {table:?} has a row that polylock has not written")]
    Malformed { table: String },

    #[error("{path:?} is on a network file system, where locks in SQLite exclude nobody")]
    Network { path: PathBuf },

    #[error("the directory of the database file {path:?} does not exist")]
    NoDirectory { path: PathBuf, source: Source },

    #[error("the database file {path:?} cannot have a write-ahead log, its journal is {journal:?}")]
    NoWal { path: PathBuf, journal: String },

    #[error("the database file {path:?} cannot be opened")]
    Open { path: PathBuf, source: Source },

    #[error("the database file {path:?} is read-only")]
    ReadOnly { path: PathBuf, source: Source },

    #[error("the database refused a statement, its table may be somebody else's")]
    Refused { source: Source },

    #[error("the database file {path:?} was replaced or deleted")]
    Replaced { path: PathBuf },

    #[error("the database did not answer within {0:?}")]
    Silent(Duration),

    #[error("locks in SQLite need the boot id of a Linux kernel")]
    Unportable { source: Source },
}

pub(crate) type Source = Arc<dyn StdError + Send + Sync>;

impl Cause {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Network { .. } | Self::NoWal { .. } => ErrorKind::InvalidConfig,
            Self::Layout { .. } | Self::Malformed { .. } | Self::Refused { .. } => {
                ErrorKind::Protocol
            }
            Self::Unportable { .. } => ErrorKind::Unsupported,
            Self::Busy
            | Self::Damaged { .. }
            | Self::Full { .. }
            | Self::Io { .. }
            | Self::NoDirectory { .. }
            | Self::Open { .. }
            | Self::ReadOnly { .. }
            | Self::Replaced { .. }
            | Self::Silent(_) => ErrorKind::Unavailable,
        }
    }

    fn into_source(self) -> Option<Source> {
        match self {
            Self::Damaged { source, .. }
            | Self::Full { source, .. }
            | Self::Io { source, .. }
            | Self::NoDirectory { source, .. }
            | Self::Open { source, .. }
            | Self::ReadOnly { source, .. }
            | Self::Refused { source }
            | Self::Unportable { source } => Some(source),
            _ => None,
        }
    }
}

/// What failed before anything was written.
impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            outcome_unknown: false,
        }
    }
}

impl From<Failure> for Error {
    fn from(
        Failure {
            cause,
            outcome_unknown,
        }: Failure,
    ) -> Self {
        let mut error = Self::new(cause.kind(), cause.to_string());
        if let Some(source) = cause.into_source() {
            error = error.with_source(source);
        }
        if outcome_unknown {
            error.with_unknown_outcome()
        } else {
            error
        }
    }
}
