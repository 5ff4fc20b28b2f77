use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::{Error, ErrorKind};
use zookeeper_client::Error as ClientError;

/// Why an operation failed. Clonable, because callers share a session.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ZkFailure {
    /// The ensemble refuses a request, or the client gives up on it.
    #[error("{}", ZkAdvice(.0))]
    Client(ClientError),

    #[error("{0}")]
    Config(String),

    /// A node in place of one of ours, below the root.
    #[error("the node {0} below the root was not written by polylock and is left as it is")]
    Foreign(String),

    /// The reply is none of those that the request has.
    #[error("ZooKeeper answered something that is not understood: {0}")]
    Malformed(String),

    /// A node of this client has a name that no server gives. A retry does not change the name.
    #[error("the name of a node is not understood: {0:?}")]
    Misnamed(String),

    /// The source of the login failed, or gave a login that cannot be sent; its error says why.
    #[error("there is no login for the session: {0}")]
    NoLogin(Arc<Error>),

    /// Each server has a reason of its own.
    #[error("no server opens a session: {0}")]
    NoSession(String),

    /// There is no answer in time; the request may be carried out all the same.
    #[error("ZooKeeper did not answer within {0:?}")]
    Silent(Duration),

    /// A deletion without a reply may have deleted the node, or something else ended it before that.
    #[error(
        "ZooKeeper did not reply to the release, and the node or the session of the lock is gone"
    )]
    Unconfirmed,

    /// The same for each server: one side does not trust the other.
    #[error("no server opens a session: {0}")]
    Untrusted(String),
}

/// Between a broken connection and the next request.
pub(crate) const RETRY_BACKOFF: Duration = Duration::from_millis(20);

impl ZkFailure {
    /// Whether the session has ended, and with it all its ephemeral nodes.
    pub(crate) fn is_over(&self) -> bool {
        matches!(
            self,
            Self::Client(
                ClientError::AuthFailed
                    | ClientError::ClientClosed
                    | ClientError::NoHosts
                    | ClientError::SessionExpired
            )
        )
    }

    /// Whether ZooKeeper may have executed the request, or may still do so.
    ///
    /// The end of a session is not ambiguous: its nodes are deleted, or will be.
    pub(crate) fn is_ambiguous(&self) -> bool {
        match self {
            Self::Client(error) => is_ambiguous(error),
            Self::Malformed(_) | Self::Silent(_) | Self::Unconfirmed => true,
            Self::Config(_)
            | Self::Foreign(_)
            | Self::Misnamed(_)
            | Self::NoLogin(_)
            | Self::NoSession(_)
            | Self::Untrusted(_) => false,
        }
    }

    /// Whether a server replied without saying whether the request was executed.
    pub(crate) fn is_unclear_reply(&self) -> bool {
        matches!(
            self,
            Self::Malformed(_)
                | Self::Client(
                    ClientError::UnexpectedError(_)
                        | ClientError::UnexpectedErrorCode(_)
                        | ClientError::UnmarshalError { .. }
                )
        )
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// Whether the node of the request is not there.
    pub(crate) fn is_no_node(&self) -> bool {
        matches!(self, Self::Client(ClientError::NoNode))
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Client(error) => kind(error),
            Self::Config(_) => ErrorKind::InvalidConfig,
            Self::Foreign(_) => ErrorKind::Foreign,
            Self::Malformed(_) | Self::Misnamed(_) => ErrorKind::Protocol,
            Self::NoSession(_) | Self::Silent(_) | Self::Unconfirmed => ErrorKind::Unavailable,
            Self::NoLogin(error) => error.kind(),
            Self::Untrusted(_) => ErrorKind::Denied,
        }
    }
}

fn is_ambiguous(error: &ClientError) -> bool {
    match error {
        ClientError::ConnectionLoss
        | ClientError::Custom(_)
        | ClientError::RuntimeInconsistent
        // A server refuses a request because the session is at another server by now: it lives on.
        | ClientError::SessionMoved
        | ClientError::Timeout
        | ClientError::UnexpectedError(_)
        | ClientError::UnmarshalError { .. } => true,
        ClientError::UnexpectedErrorCode(code) => is_of_the_system(*code),
        _ => false,
    }
}

/// Whether a code that the client does not know says that the server failed, not that it refused:
/// system error, inconsistencies, connection loss, and the time-outs of an operation and a request.
fn is_of_the_system(code: i32) -> bool {
    matches!(code, -4..=-1 | -7 | -122)
}

fn kind(error: &ClientError) -> ErrorKind {
    match error {
        ClientError::AuthFailed | ClientError::InvalidAcl | ClientError::NoAuth => {
            ErrorKind::Denied
        }
        ClientError::ClientClosed
        | ClientError::ConnectionLoss
        | ClientError::Custom(_)
        | ClientError::NoHosts
        | ClientError::NotReadOnly
        | ClientError::QuotaExceeded
        | ClientError::SessionExpired
        | ClientError::SessionMoved
        | ClientError::Throttled
        | ClientError::Timeout => ErrorKind::Unavailable,
        ClientError::NoChildrenForEphemerals => ErrorKind::Foreign,
        ClientError::UnexpectedErrorCode(code) if is_of_the_system(*code) => ErrorKind::Unavailable,
        _ => ErrorKind::Protocol,
    }
}

/// An error of the client, and what to do about it.
struct ZkAdvice<'a>(&'a ClientError);

impl fmt::Display for ZkAdvice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ClientError::AuthFailed => {
                "ZooKeeper refuses this user or password, or asks for a login and the URL has none"
            }
            ClientError::ClientClosed => "the session is closed",
            ClientError::ConnectionLoss | ClientError::Custom(_) => {
                "the connection to ZooKeeper broke"
            }
            ClientError::InvalidAcl => {
                "ZooKeeper does not know who this client is, and nodes cannot be its own: log in, or \
                 write access=everybody"
            }
            ClientError::NoAuth => {
                "ZooKeeper denies access to the root or to a node: its access control list does not name \
                 this client. A wrong password of auth=digest shows in this way; getAcl of zkCli.sh \
                 says who may do what"
            }
            ClientError::NoChildrenForEphemerals => {
                "an ephemeral node of another program is in place of the directory of the lock"
            }
            ClientError::NoHosts | ClientError::Timeout => "no server opens a session",
            ClientError::NotReadOnly => {
                "the server is cut off from the majority of its ensemble and takes no writes"
            }
            ClientError::QuotaExceeded => {
                "a quota of ZooKeeper is exceeded: listquota of zkCli.sh shows it"
            }
            ClientError::SessionExpired => {
                "the session has expired: ZooKeeper had heard nothing of this client for too long"
            }
            ClientError::SessionMoved => "the session is used from somewhere else",
            ClientError::Throttled => "ZooKeeper is overloaded and turns requests away",
            ClientError::Unimplemented => {
                "ZooKeeper does not know a request: the server must be 3.6 or later"
            }
            error => return write!(f, "ZooKeeper answered with an error: {error}"),
        })
    }
}

impl From<ClientError> for ZkFailure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<ZkFailure> for Error {
    fn from(failure: ZkFailure) -> Self {
        let error = Self::new(failure.kind(), failure.to_string());
        let error = if failure.is_ambiguous() {
            error.with_unknown_outcome()
        } else {
            error
        };
        match failure {
            ZkFailure::Client(source) => error.with_source(source),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_what_became_of_the_session_and_of_the_request() {
        let client = ZkFailure::Client;
        let over = [ClientError::SessionExpired, ClientError::ClientClosed].map(client);
        let unknown = [
            client(ClientError::ConnectionLoss),
            client(ClientError::SessionMoved),
            client(ClientError::UnexpectedErrorCode(-7)),
            ZkFailure::Silent(Duration::ZERO),
            ZkFailure::Unconfirmed,
        ];
        let refused = [
            client(ClientError::NoAuth),
            client(ClientError::NoNode),
            ZkFailure::Misnamed("x".to_owned()),
        ];
        let throttled = [client(ClientError::Throttled)];
        let malformed = [ZkFailure::Malformed("x".to_owned())];
        // The session is over, the request may have been carried out, it may succeed later.
        for (failures, expected) in [
            (&over[..], (true, false, true)),
            (&unknown, (false, true, true)),
            (&refused, (false, false, false)),
            (&throttled, (false, false, true)),
            (&malformed, (false, true, false)),
        ] {
            for failure in failures {
                let found = (
                    failure.is_over(),
                    failure.is_ambiguous(),
                    failure.is_retryable(),
                );
                assert_eq!(found, expected, "{failure:?}");
            }
        }
    }
}
