use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::{Error, ErrorKind};
use redis::{RedisError, ServerError};

pub(crate) use crate::refusal::Refusal;
use crate::refusal::without_arguments;

/// Why an operation has no result.
#[derive(Clone, Debug)]
pub(crate) struct RedisFailure {
    pub(crate) cause: RedisCause,
    /// Whether a server may have executed the request.
    pub(crate) outcome_unknown: bool,
}

/// What failed at a server. Clonable, because callers share an attempt to connect.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RedisCause {
    #[error("{0}")]
    Config(String),

    #[error("cannot connect to {server}")]
    Connect {
        server: Arc<str>,
        source: RedisErrorSource,
    },

    #[error("the connection to {server} broke")]
    Disconnected {
        server: Arc<str>,
        source: RedisErrorSource,
    },

    #[cfg(feature = "tls")]
    #[error("the TLS files were not read within {within:?}")]
    TlsFilesTimedOut { within: Duration },

    /// `says` describes the value found in place of a lock.
    #[error("{server} {says}")]
    Foreign { server: Arc<str>, says: String },

    #[error("{server} answered something that is not understood: {what}")]
    Malformed { server: Arc<str>, what: String },

    #[error("there are no credentials for {server}")]
    NoLogin {
        server: Arc<str>,
        source: RedisErrorSource,
    },

    #[error("other records with the same token are stored all the time")]
    Overtaken,

    #[error("no master named {name:?} can be reached by the sentinels")]
    NoMaster { name: Arc<str> },

    #[error("{server} {refusal}")]
    Refused {
        server: Arc<str>,
        refusal: Refusal,
        source: RedisErrorSource,
    },

    #[error("the server refuses requests as out of date when they arrive: its clock steps")]
    Late,

    /// The lease may have been extended.
    #[error("the server did not answer the renewal in time")]
    LateRenewal,

    /// The grant or the change was made, but a failover would undo it.
    #[error("{acked} of {wanted} replicas have the change in time, it does not count")]
    Unacknowledged { acked: u32, wanted: u32 },

    #[error(
        "{named} of {sentinels} sentinels confirm in time that {server} is the master, which is no majority{}",
        missing_right(*.denied)
    )]
    Unconfirmed {
        server: Arc<str>,
        named: usize,
        /// Sentinels that name the master, and hide from this user whether it is down.
        denied: usize,
        sentinels: usize,
    },

    #[error(
        "the nodes of the cluster refer to each other for slot {slot}: CLUSTER NODES shows its move"
    )]
    Undecided { slot: u16 },

    #[error("the cluster has no master for slot {slot}: CLUSTER NODES says which one fails")]
    Uncovered { slot: u16 },

    #[error(
        "the TLS handshake with {server} failed: it speaks no TLS, or its certificate is not trusted, \
         or that of this client"
    )]
    Untrusted {
        server: Arc<str>,
        source: RedisErrorSource,
    },

    #[error("what answers at {server} is {what}")]
    Stranger {
        server: Arc<str>,
        what: String,
        kind: ErrorKind,
    },

    #[error("{server} did not answer within {within:?}")]
    Silent { server: Arc<str>, within: Duration },
}

/// The right that a user lacks at this many Sentinels.
fn missing_right(denied: usize) -> String {
    match denied {
        0 => String::new(),
        _ => format!("; {denied} deny SENTINEL MASTER to this user, who needs +sentinel|master"),
    }
}

pub(crate) type RedisErrorSource = Arc<dyn StdError + Send + Sync>;

impl RedisFailure {
    /// The reply to a request is an error.
    pub(crate) fn refused(server: &Arc<str>, error: ServerError) -> Self {
        let refusal = Refusal::of(&error);
        let outcome_unknown = refusal.is_outcome_unknown(&error);
        Self {
            cause: RedisCause::Refused {
                server: Arc::clone(server),
                refusal,
                source: match without_arguments(&error) {
                    Some(text) => Arc::from(Box::from(text)),
                    None => Arc::new(error),
                },
            },
            outcome_unknown,
        }
    }

    /// The connection broke or lost synchronization while the request was in flight.
    pub(crate) fn broken(server: &Arc<str>, error: RedisError) -> Self {
        let server = Arc::clone(server);
        let cause = if error.kind() == redis::ErrorKind::Parse {
            let what = error.to_string();
            RedisCause::Malformed { server, what }
        } else {
            let source = Arc::new(error);
            RedisCause::Disconnected { server, source }
        };
        cause.unknown()
    }

    /// A connection could not be made; nothing was sent on it.
    pub(crate) fn unconnected(server: &Arc<str>, error: RedisError) -> Self {
        let server = Arc::clone(server);
        if error.kind() == redis::ErrorKind::AuthenticationFailed {
            return RedisCause::Refused {
                server,
                refusal: Refusal::WrongPass,
                source: Arc::new(error),
            }
            .into();
        }
        if error.to_string().contains(NO_SUCH_DATABASE) {
            let message = format!("{server} has fewer databases: see its option `databases`");
            return RedisCause::Config(message).into();
        }
        match ServerError::try_from(error) {
            Ok(reply) => Self::refused(&server, reply).cause.into(),
            Err(error) if is_of_tls(&error) => {
                let source = Arc::new(error);
                RedisCause::Untrusted { server, source }.into()
            }
            Err(error) => {
                let source = Arc::new(error);
                RedisCause::Connect { server, source }.into()
            }
        }
    }

    /// No reply came; `sent` says whether the request may have been sent.
    pub(crate) fn silent(server: &Arc<str>, within: Duration, sent: bool) -> Self {
        let server = Arc::clone(server);
        Self {
            cause: RedisCause::Silent { server, within },
            outcome_unknown: sent,
        }
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        self.cause.kind() == ErrorKind::Unavailable
    }

    /// The target of a cluster redirection, the node that has the slot or is about to get it, and the server
    /// that sent it.
    pub(crate) fn redirection(&self) -> Option<(&str, &str)> {
        match &self.cause {
            RedisCause::Refused {
                server,
                refusal: Refusal::Ask | Refusal::Moved,
                source,
            } => {
                let reply = source.downcast_ref::<ServerError>()?;
                Some((reply.details()?.split(' ').nth(1)?, server))
            }
            _ => None,
        }
    }

    /// Whether the server is a replica, or became one during the request.
    pub(crate) fn is_of_replica(&self) -> bool {
        matches!(
            self.refusal(),
            Some(Refusal::Demoted | Refusal::MasterDown | Refusal::ReadOnly)
        )
    }

    /// Whether the user may not use one of the keys of the request. The server does not say which.
    pub(crate) fn is_of_key(&self) -> bool {
        match &self.cause {
            RedisCause::Refused {
                refusal: Refusal::NoPerm,
                source,
                ..
            } => {
                let reply = source.downcast_ref::<ServerError>();
                let details = reply.and_then(ServerError::details);
                details.is_some_and(|details| details.contains("permissions to access"))
            }
            _ => false,
        }
    }

    /// The refusal of the server, if it refused the request.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match &self.cause {
            RedisCause::Refused { refusal, .. } => Some(*refusal),
            _ => None,
        }
    }
}

/// The error of Redis for a database that does not exist.
const NO_SUCH_DATABASE: &str = "DB index is out of range";

/// Whether a TLS handshake failed; rustls wraps the reasons in these I/O errors.
fn is_of_tls(error: &RedisError) -> bool {
    let io = error.source().and_then(|source| {
        let io = source.downcast_ref::<Arc<dyn StdError + Send + Sync>>();
        io.map_or(Some(source), |io| Some(&**io))
    });
    let io = io.and_then(|io| io.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::InvalidData)
}

impl RedisCause {
    /// A reply of a server is none of those that the request has.
    pub(crate) fn malformed(server: &Arc<str>, what: impl Into<String>) -> Self {
        let (server, what) = (Arc::clone(server), what.into());
        Self::Malformed { server, what }
    }

    /// Marks the outcome as unknown: the server may have executed the request.
    pub(crate) fn unknown(self) -> RedisFailure {
        RedisFailure {
            cause: self,
            outcome_unknown: true,
        }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(_) => ErrorKind::InvalidConfig,
            #[cfg(feature = "tls")]
            Self::TlsFilesTimedOut { .. } => ErrorKind::Unavailable,
            Self::Foreign { .. } => ErrorKind::Foreign,
            Self::Malformed { .. } => ErrorKind::Protocol,
            Self::Stranger { kind, .. } => *kind,
            Self::Untrusted { .. } => ErrorKind::Denied,
            Self::Refused { refusal, .. } => refusal.kind(),
            // The other Sentinels cannot form a majority.
            Self::Unconfirmed {
                denied, sentinels, ..
            } if 2 * (sentinels - denied) <= *sentinels => ErrorKind::Denied,
            Self::Connect { .. }
            | Self::Disconnected { .. }
            | Self::Late
            | Self::Overtaken
            | Self::LateRenewal
            | Self::NoLogin { .. }
            | Self::NoMaster { .. }
            | Self::Silent { .. }
            | Self::Unacknowledged { .. }
            | Self::Unconfirmed { .. }
            | Self::Undecided { .. }
            | Self::Uncovered { .. } => ErrorKind::Unavailable,
        }
    }

    fn into_source(self) -> Option<RedisErrorSource> {
        match self {
            // Its source would add only the name of a script.
            Self::Refused {
                refusal: Refusal::WrongType,
                ..
            } => None,
            Self::Connect { source, .. }
            | Self::Disconnected { source, .. }
            | Self::NoLogin { source, .. }
            | Self::Refused { source, .. }
            | Self::Untrusted { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Failures before any request was sent.
impl From<RedisCause> for RedisFailure {
    fn from(cause: RedisCause) -> Self {
        Self {
            cause,
            outcome_unknown: false,
        }
    }
}

impl From<RedisFailure> for Error {
    fn from(failure: RedisFailure) -> Self {
        let mut error = Self::new(failure.cause.kind(), failure.cause.to_string());
        if failure.outcome_unknown {
            error = error.with_unknown_outcome();
        }
        match failure.cause.into_source() {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_are_named_only_if_no_majority_is_possible_without_them() {
        for (denied, sentinels, kind) in [
            (0, 3, ErrorKind::Unavailable),
            (1, 3, ErrorKind::Unavailable),
            (2, 3, ErrorKind::Denied),
            (1, 4, ErrorKind::Unavailable),
            (2, 4, ErrorKind::Denied),
        ] {
            let cause = RedisCause::Unconfirmed {
                server: "a:1".into(),
                named: 1,
                denied,
                sentinels,
            };
            assert_eq!(cause.kind(), kind, "{denied} of {sentinels}");
        }
    }
}
