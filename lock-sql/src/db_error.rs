use std::fmt;
use std::io;
use std::sync::Arc;

/// The error of a database, or of the connection to it.
#[derive(Clone, Debug)]
pub(crate) struct DbError {
    pub(crate) class: ErrorClass,
    pub(crate) source: Arc<sqlx::Error>,
    /// What is said in place of the text of the class.
    pub(crate) says: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ErrorClass {
    /// A statement was cancelled, by us, by an administrator or by a time-out of the server.
    Cancelled,
    /// A deadlock, or two transactions that cannot both be; the statement did nothing.
    Conflict,
    /// The server refuses the credentials, or knows no such user.
    Denied,
    Full,
    Gone,
    Insecure,
    /// The connection was ended on purpose, by an administrator or a time-out of the server.
    Killed,
    /// A lock was not free, or not in time.
    LockTimeout,
    /// The provider of the user and the password failed.
    NoLogin,
    /// The credentials are right, and the user lacks a right.
    NoRight,
    NoTable,
    NoTls,
    /// The server is a replica, or takes no writes.
    ReadOnly,
    /// The server starts, stops or recovers.
    Starting,
    TooMany,
    /// A certificate is refused, on this side or on the other.
    Untrusted,
    /// The prepared statement is on another server connection: a pooler is in the path.
    Unprepared,
    /// The table has other columns or column types.
    WrongTable,
    Other,
}

impl ErrorClass {
    /// Whether the connection is useless: it is broken, or leads to a server that was replaced by a
    /// failover.
    pub(crate) fn is_the_end(self) -> bool {
        self.ends_connection() || self == Self::ReadOnly
    }

    /// Whether the connection broke, so that the outcome is unknown.
    pub(crate) fn ends_connection(self) -> bool {
        matches!(self, Self::Gone | Self::Killed | Self::Starting)
    }
}

impl DbError {
    pub(crate) fn new(class: ErrorClass, source: sqlx::Error) -> Self {
        Self {
            class,
            source: Arc::new(source),
            says: None,
        }
    }

    /// The same, with what is said in place of the text of the class.
    pub(crate) fn saying(class: ErrorClass, says: &str, source: sqlx::Error) -> Self {
        Self {
            says: Some(says.into()),
            ..Self::new(class, source)
        }
    }

    /// The error of a statement that was sent. The certificates were accepted before, so a reply that TLS cannot read
    /// was damaged on its way.
    pub(crate) fn of_statement(mut self) -> Self {
        if self.class == ErrorClass::Untrusted {
            self.class = ErrorClass::Gone;
        }
        self
    }

    /// What it means, without what the server says.
    pub(crate) fn says(&self) -> &str {
        let says = self.says.as_deref();
        says.unwrap_or_else(|| self.class.says())
    }

    /// Errors that are no database's.
    pub(crate) fn of_client(error: sqlx::Error) -> Self {
        let class = match &error {
            // How the TLS library says that a handshake failed.
            sqlx::Error::Io(e) if e.kind() == io::ErrorKind::InvalidData => ErrorClass::Untrusted,
            sqlx::Error::Tls(_) => ErrorClass::NoTls,
            sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::PoolClosed
            | sqlx::Error::PoolTimedOut => ErrorClass::Gone,
            _ => ErrorClass::Other,
        };
        Self::new(class, error)
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.source, f)
    }
}
