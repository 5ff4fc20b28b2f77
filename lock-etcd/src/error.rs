use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use etcd_client::Error as ClientError;
use polylock_core::{Error, ErrorKind};
use tonic::{Code, ConnectError, Status};

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EtcdFailure {
    #[error("the lock was adopted 255 times, and has no more tokens until it is released")]
    AdoptedTooOften,

    /// The cluster refuses a request, or the connection to it broke.
    #[error("{}", EtcdAdvice(.0))]
    Client(ClientError),

    #[error("{0}")]
    Config(String),

    /// The source of the login or the engine has failed; the error says why.
    #[error("{0}")]
    Core(Error),

    /// Something else in place of a record.
    #[error("the key {0:?} was not written by polylock and is left as it is")]
    Foreign(String),

    /// The database of etcd has reached its quota, and the request has had no effect.
    #[error("{}", EtcdAdvice(.0))]
    Full(ClientError),

    /// Leaders changed at each renewal of a lease.
    #[error("etcd elects a leader, and the lease could not be renewed by one that lasts")]
    LeaderChanged,

    /// The lease of etcd that a request names is not there.
    #[error("the lease is unknown to etcd")]
    LeaseGone,

    /// The token of a login has ended, or the users have changed since it was given.
    #[error("the login at etcd has ended")]
    LoginEnded,

    #[error("etcd answered something that is not understood: {0}")]
    Protocol(&'static str),

    #[error("etcd did not answer within {0:?}")]
    Silent(Duration),

    /// A deletion without a reply may have deleted the key, or the key was gone before that.
    #[error("etcd did not reply to the release, and the key of the lock is gone")]
    Unconfirmed,
}

/// Between a failed request and the next one.
pub(crate) const RETRY_BACKOFF: Duration = Duration::from_millis(20);

impl EtcdFailure {
    /// Whether etcd may have executed the request, or may still do so.
    pub(crate) fn is_ambiguous(&self) -> bool {
        match self {
            Self::Client(error) => is_ambiguous(error),
            Self::LeaderChanged | Self::Protocol(_) | Self::Silent(_) | Self::Unconfirmed => true,
            Self::AdoptedTooOften
            | Self::Config(_)
            | Self::Foreign(_)
            | Self::Full(_)
            | Self::LeaseGone
            | Self::LoginEnded
            | Self::Core(_) => false,
        }
    }

    /// Whether the same request may succeed on another connection or a little later.
    pub(crate) fn is_retryable(&self) -> bool {
        !matches!(self, Self::LeaseGone) && self.kind() == ErrorKind::Unavailable
    }

    /// Whether another connection, with a login of its own, may do better.
    pub(crate) fn is_of_connection(&self) -> bool {
        match self {
            Self::Client(ClientError::GRpcStatus(status)) => {
                self.is_retryable() && (!is_refusal(status) || is_of_learner(status))
            }
            Self::Client(_) => self.is_retryable(),
            Self::Core(_) | Self::LoginEnded | Self::Silent(_) => true,
            _ => false,
        }
    }

    /// Whether no server has replied, as far as is known.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        match self {
            Self::Client(ClientError::GRpcStatus(status)) => {
                let is_reply = is_refusal(status) || status.message().starts_with("etcdserver: ");
                self.kind() == ErrorKind::Unavailable && !is_reply
            }
            Self::Client(_) => self.kind() == ErrorKind::Unavailable,
            Self::Silent(_) => true,
            _ => false,
        }
    }

    /// Whether the database of etcd has reached its quota, so that it takes no writes.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Client(ClientError::GRpcStatus(status)) => is_full(status),
            Self::Full(_) => true,
            _ => false,
        }
    }

    /// Whether the revision that a request asks for is compacted.
    pub(crate) fn is_compacted(&self) -> bool {
        let message = "required revision has been compacted";
        matches!(self, Self::Client(ClientError::GRpcStatus(status)) if status.message().contains(message))
    }

    /// Whether a lease with the same id was granted before.
    pub(crate) fn is_granted(&self) -> bool {
        let known = "lease already exists";
        matches!(self, Self::Client(ClientError::GRpcStatus(status)) if status.message().contains(known))
    }

    /// The failure of a request to a full database that is known to have had no effect.
    pub(crate) fn without_effect(self) -> Self {
        match self {
            Self::Client(error) => Self::Full(error),
            other => other,
        }
    }

    /// The refusal of a full database, if it is one without an effect.
    pub(crate) fn refusal(&self) -> Option<Status> {
        match self {
            Self::Full(ClientError::GRpcStatus(status)) => Some(status.clone()),
            _ => None,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Client(ClientError::GRpcStatus(status)) => kind(status),
            Self::Client(ClientError::InvalidArgs(_) | ClientError::InvalidUri(_)) => {
                ErrorKind::InvalidConfig
            }
            Self::Client(_)
            | Self::Full(_)
            | Self::LeaderChanged
            | Self::LeaseGone
            | Self::Silent(_)
            | Self::Unconfirmed => ErrorKind::Unavailable,
            Self::AdoptedTooOften => ErrorKind::Unsupported,
            Self::Config(_) => ErrorKind::InvalidConfig,
            Self::Foreign(_) => ErrorKind::Foreign,
            Self::LoginEnded => ErrorKind::Denied,
            Self::Core(error) => error.kind(),
            Self::Protocol(_) => ErrorKind::Protocol,
        }
    }
}

fn is_ambiguous(error: &ClientError) -> bool {
    match error {
        ClientError::GRpcStatus(status) if is_unconnected(status) => false,
        ClientError::GRpcStatus(status) => !is_refusal(status) || is_full(status),
        ClientError::InvalidArgs(_) | ClientError::InvalidUri(_) => false,
        _ => true,
    }
}

/// Whether no connection could be made, so that nothing was sent.
fn is_unconnected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Whether etcd has refused the request. A server that is out of reach, or lost its leader, may have executed
/// it, and so may one whose answer is too large for this client.
fn is_refusal(status: &Status) -> bool {
    match status.code() {
        Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::InvalidArgument
        | Code::NotFound
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => true,
        // A connection that the server closes because of too many pings has this code as well.
        Code::ResourceExhausted => is_full(status) || status.message().starts_with("etcdserver: "),
        _ => false,
    }
}

/// Whether the database has reached its quota. Too many requests at a time have the same code. etcd executes
/// the request that reaches the quota, and then answers this.
fn is_full(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && status.message().contains("database space exceeded")
}

/// Whether the server is a learner, which serves no clients until it is promoted. Before etcd 3.6 the code is
/// `Unavailable`.
fn is_of_learner(status: &Status) -> bool {
    let message = "rpc not supported for learner";
    status.code() == Code::FailedPrecondition && status.message().contains(message)
}

/// Whether the token of a login has ended, or the users have changed since it was given: then the client
/// tries the password that it has once more.
fn is_of_login(status: &Status) -> bool {
    let ended = ["auth store is old", "authentication failed"];
    let message = status.message();
    let has_ended = ended.iter().any(|ended| message.contains(ended));
    has_ended || status.code() == Code::Unauthenticated || is_without_auth(status)
}

/// Whether the server has authentication disabled, and therefore takes no login.
pub(crate) fn is_without_auth(status: &Status) -> bool {
    let message = "authentication is not enabled";
    status.code() == Code::FailedPrecondition && status.message().contains(message)
}

/// Whether the server has authentication enabled, and the connection was made without a login.
fn is_without_login(status: &Status) -> bool {
    status.message().contains("user name is empty")
}

fn kind(status: &Status) -> ErrorKind {
    match status.code() {
        // A wrong password and a missing login have this code.
        Code::InvalidArgument if is_about_login(status) => ErrorKind::Denied,
        Code::FailedPrecondition if is_about_login(status) => ErrorKind::Denied,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Denied,
        // The quota of the database, too many requests at a time, or a connection that is closed.
        Code::ResourceExhausted => ErrorKind::Unavailable,
        Code::OutOfRange => ErrorKind::Protocol,
        _ if is_of_learner(status) => ErrorKind::Unavailable,
        _ if is_refusal(status) => ErrorKind::Protocol,
        _ => ErrorKind::Unavailable,
    }
}

fn is_about_login(status: &Status) -> bool {
    let message = status.message();
    message.contains("user") || message.contains("auth")
}

/// An error of the client, and what to do about it.
struct EtcdAdvice<'a>(&'a ClientError);

impl fmt::Display for EtcdAdvice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClientError::GRpcStatus(status) = self.0 else {
            return write!(f, "the connection to etcd failed: {}", self.0);
        };
        let message = status.message();
        match kind(status) {
            ErrorKind::Denied => write!(
                f,
                "etcd refuses this user or password, the user lacks the right to the prefix, or there \
                 is no login and etcd asks for one: {message}"
            ),
            ErrorKind::Unavailable if is_refusal(status) && !is_of_learner(status) => {
                write!(f, "etcd takes no writes: {message}")
            }
            // The alarm CORRUPT, under which a server answers nothing.
            ErrorKind::Unavailable if status.code() == Code::DataLoss => {
                write!(
                    f,
                    "the data of a server of etcd differ from those of the others: {message}"
                )
            }
            ErrorKind::Unavailable => write!(f, "etcd is out of reach: {message}"),
            _ => write!(f, "etcd refuses a request: {message}"),
        }
    }
}

/// An error of the client as a cause. Its own text has the `Debug` form of all that it was caused by.
#[derive(Debug)]
struct EtcdSource(ClientError);

impl StdError for EtcdSource {}

impl fmt::Display for EtcdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClientError::GRpcStatus(status) = &self.0 else {
            return write!(f, "{}", self.0);
        };
        let sources = std::iter::successors(status.source(), |&error| error.source());
        match sources.last() {
            Some(first_cause) => write!(f, "{first_cause}"),
            None => f.write_str(status.message()),
        }
    }
}

impl EtcdFailure {
    /// The failure of a request on a connection that was made earlier, with the login at that time if the client
    /// has one.
    pub(crate) fn of_request(error: ClientError, has_login: bool) -> Self {
        match &error {
            ClientError::GRpcStatus(status)
                if is_of_login(status) || (has_login && is_without_login(status)) =>
            {
                Self::LoginEnded
            }
            _ => error.into(),
        }
    }
}

/// The client's message at the first keep-alive of a stream.
pub(crate) const NOT_FOUND: &str = "lease not found";

impl From<ClientError> for EtcdFailure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::GRpcStatus(status) if status.code() == Code::NotFound => Self::LeaseGone,
            // The client's error for a keep-alive that is answered without a time to live.
            ClientError::LeaseKeepAliveError(message) if message == NOT_FOUND => Self::LeaseGone,
            error => Self::Client(error),
        }
    }
}

impl EtcdFailure {
    /// The error of a request that acquires and releases no lock, whatever became of it.
    pub(crate) fn with_known_outcome(self) -> Error {
        let error = Error::new(self.kind(), self.to_string());
        match self {
            Self::Client(source) | Self::Full(source) => error.with_source(EtcdSource(source)),
            _ => error,
        }
    }
}

impl From<EtcdFailure> for Error {
    fn from(failure: EtcdFailure) -> Self {
        let is_ambiguous = failure.is_ambiguous();
        let error = failure.with_known_outcome();
        match is_ambiguous {
            true => error.with_unknown_outcome(),
            false => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "mvcc: database space exceeded";

    #[test]
    fn each_error_says_what_became_of_the_request() {
        let status = |code, message: &str| ClientError::from(Status::new(code, message));
        let of_code = |code| EtcdFailure::from(status(code, "a message"));
        let busy = "etcdserver: too many requests";
        let closed = "h2 protocol error: http2 error";
        let out_of_reach = [
            EtcdFailure::from(status(Code::ResourceExhausted, closed)),
            of_code(Code::DataLoss),
            of_code(Code::Unavailable),
            of_code(Code::Unknown),
            EtcdFailure::Silent(Duration::ZERO),
        ];
        let no_user = || status(Code::InvalidArgument, "user name is empty");
        let no_auth = status(Code::FailedPrecondition, "authentication is not enabled");
        let login_ended = [
            EtcdFailure::of_request(status(Code::Unauthenticated, "token"), true),
            EtcdFailure::of_request(status(Code::InvalidArgument, "auth store is old"), true),
            EtcdFailure::of_request(no_auth, true),
            EtcdFailure::of_request(no_user(), true),
        ];
        let denied = [
            of_code(Code::PermissionDenied),
            EtcdFailure::from(status(Code::InvalidArgument, "authentication failed")),
            EtcdFailure::of_request(no_user(), false),
        ];
        let unconfirmed = [EtcdFailure::Unconfirmed];
        let full = || {
            let message = format!("etcdserver: {FULL}");
            EtcdFailure::from(status(Code::ResourceExhausted, &message))
        };
        let unprefixed = EtcdFailure::from(status(Code::ResourceExhausted, FULL));
        let perhaps_executed = [full(), unprefixed];
        let refused = [
            EtcdFailure::from(status(Code::ResourceExhausted, busy)),
            full().without_effect(),
            of_code(Code::NotFound),
        ];
        let not_served = "etcdserver: rpc not supported for learner";
        let learner = [EtcdFailure::from(status(
            Code::FailedPrecondition,
            not_served,
        ))];
        let (wrong, too_large) = (
            [of_code(Code::InvalidArgument)],
            [of_code(Code::OutOfRange)],
        );
        // What it is, whether it may have been done, and whether another connection may help.
        for (failures, kind, is_ambiguous, is_of_connection) in [
            (&out_of_reach[..], ErrorKind::Unavailable, true, true),
            (&login_ended, ErrorKind::Denied, false, true),
            (&denied, ErrorKind::Denied, false, false),
            (&unconfirmed, ErrorKind::Unavailable, true, false),
            (&perhaps_executed, ErrorKind::Unavailable, true, false),
            (&refused, ErrorKind::Unavailable, false, false),
            (&learner, ErrorKind::Unavailable, false, true),
            (&wrong, ErrorKind::Protocol, false, false),
            (&too_large, ErrorKind::Protocol, true, false),
        ] {
            for failure in failures {
                let found = (failure.is_ambiguous(), failure.is_of_connection());
                assert_eq!(failure.kind(), kind, "{failure:?}");
                assert_eq!(found, (is_ambiguous, is_of_connection), "{failure:?}");
                let is_full = failure.to_string().contains(FULL);
                assert_eq!(failure.is_full(), is_full, "{failure:?}");
            }
        }
    }
}
