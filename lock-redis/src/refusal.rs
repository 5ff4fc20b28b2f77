use std::fmt;

use lock_core::ErrorKind;
use redis::ServerError;

/// What an error reply says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    Ask,
    Busy,
    ClusterDown,
    CrossSlot,
    Full,
    Loading,
    MasterDown,
    Misconf,
    Moved,
    NoAuth,
    NoCluster,
    NoPerm,
    NoReplicas,
    NoScript,
    Other,
    ReadOnly,
    TooManyClients,
    TryAgain,
    WrongPass,
    WrongType,
}

impl Refusal {
    /// Reads an error reply.
    ///
    /// An error inside a script keeps its code from Redis 7 on, and follows `ERR Error running
    /// script` before.
    pub(crate) fn of(error: &ServerError) -> Self {
        let details = error.details().unwrap_or_default();
        if let Some(refusal) = Self::of_code(error.code()) {
            return refusal;
        }
        if details.contains("max number of clients") {
            return Self::TooManyClients;
        }
        if details.contains("cluster support disabled") {
            return Self::NoCluster;
        }
        if DENIED_IN_SCRIPT.iter().any(|text| details.contains(text)) {
            return Self::NoPerm;
        }
        let words = details.split(|c: char| !c.is_ascii_uppercase());
        words
            .filter(|word| word.len() > 2)
            .find_map(Self::of_code)
            .unwrap_or(Self::Other)
    }

    fn of_code(code: &str) -> Option<Self> {
        Some(match code {
            "ASK" => Self::Ask,
            "BUSY" => Self::Busy,
            "CLUSTERDOWN" => Self::ClusterDown,
            "CROSSSLOT" => Self::CrossSlot,
            "LOADING" => Self::Loading,
            "MASTERDOWN" => Self::MasterDown,
            "MISCONF" => Self::Misconf,
            "MOVED" => Self::Moved,
            "NOAUTH" => Self::NoAuth,
            "NOPERM" => Self::NoPerm,
            "NOREPLICAS" => Self::NoReplicas,
            "NOSCRIPT" => Self::NoScript,
            "OOM" => Self::Full,
            "READONLY" => Self::ReadOnly,
            "TRYAGAIN" => Self::TryAgain,
            "WRONGPASS" => Self::WrongPass,
            "WRONGTYPE" => Self::WrongType,
            _ => return None,
        })
    }

    /// Whether a script that ends like this has changed nothing.
    ///
    /// These meet its first write or the call itself; a missing right may show at a later command.
    pub(crate) fn is_before_anything(self) -> bool {
        !matches!(self, Self::NoPerm | Self::Other)
    }

    pub(crate) fn kind(self) -> ErrorKind {
        match self {
            Self::NoAuth | Self::NoPerm | Self::WrongPass => ErrorKind::Denied,
            Self::Moved | Self::NoCluster => ErrorKind::InvalidConfig,
            Self::CrossSlot | Self::NoScript | Self::Other => ErrorKind::Protocol,
            Self::WrongType => ErrorKind::Foreign,
            Self::Ask
            | Self::Busy
            | Self::ClusterDown
            | Self::Full
            | Self::Loading
            | Self::MasterDown
            | Self::Misconf
            | Self::NoReplicas
            | Self::ReadOnly
            | Self::TooManyClients
            | Self::TryAgain => ErrorKind::Unavailable,
        }
    }
}

/// How a missing right looks inside a script: up to Redis 7.0, and from 7.2 on.
const DENIED_IN_SCRIPT: &[&str] = &[
    "The user executing the script can't",
    "ACL failure in script",
];

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ask => "is moving the key to another node",
            Self::Busy => "is kept busy by a script that does not end; SCRIPT KILL ends it",
            Self::ClusterDown => {
                "is in a cluster that is down: CLUSTER INFO and CLUSTER NODES say which masters fail"
            }
            Self::CrossSlot => "is in a cluster and was given keys of different slots",
            Self::Full => "has no memory left: raise maxmemory or remove data",
            Self::Loading => "is loading its data set",
            Self::MasterDown => "is a replica that has lost its master",
            Self::Misconf => {
                "cannot save its data and takes no writes (MISCONF): its log says why, often a full \
                 disk"
            }
            Self::Moved => "is in a cluster and does not have this key: use redis-cluster://",
            Self::NoAuth => "asks for a user or a password, and the URL has none",
            Self::NoCluster => "is no cluster: use redis://",
            Self::NoPerm => "denies a command or a key to this user: see the list of ACL rules",
            Self::NoReplicas => {
                "has fewer good replicas than min-replicas-to-write asks for, and takes no writes"
            }
            Self::NoScript => "does not keep scripts",
            Self::Other => "answered with an error",
            Self::ReadOnly => "is a replica, which takes no writes: name its master",
            Self::TooManyClients => "has as many clients as its maxclients allows",
            Self::TryAgain => "is moving the keys to another node",
            Self::WrongPass => "refuses this user or password",
            Self::WrongType => "has something at the key that is no lock",
        })
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Error;

    use super::*;
    use crate::error::Failure;

    fn reply(line: &str) -> ServerError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
        match value.expect("a reply") {
            redis::Value::ServerError(error) => error,
            other => panic!("{other:?}"),
        }
    }

    type Case = (&'static str, Refusal, ErrorKind, bool);

    fn check(cases: &[Case], dress: fn(&str) -> String) {
        for (line, refusal, kind, unknown) in cases {
            let failure = Failure::refused(&"server".into(), reply(&dress(line)));
            assert_eq!(failure.refusal(), Some(*refusal), "{line}");
            let error = Error::from(failure);
            assert_eq!(error.kind(), *kind, "{line}");
            assert_eq!(error.is_outcome_unknown(), *unknown, "{line}");
        }
    }

    #[test]
    fn replies_to_commands_are_read() {
        use ErrorKind::{Denied, InvalidConfig, Protocol, Unavailable};
        let busy = "BUSY Redis is busy running a script. You can only call SCRIPT KILL";
        let denied = "NOPERM this user has no permissions to run the 'evalsha' command";
        let invalid = "WRONGPASS invalid username-password pair or user is disabled.";
        let keys = "CROSSSLOT Keys in request don't hash to the same slot";
        let alone = "ERR This instance has cluster support disabled";
        let unknown = "ERR unknown command `EVALSHA`, with args beginning with: ";
        let cases = [
            ("ASK 866 127.0.0.1:7001", Refusal::Ask, Unavailable, false),
            (busy, Refusal::Busy, Unavailable, false),
            (
                "CLUSTERDOWN The cluster is down",
                Refusal::ClusterDown,
                Unavailable,
                false,
            ),
            (keys, Refusal::CrossSlot, Protocol, false),
            (
                "LOADING Redis is loading",
                Refusal::Loading,
                Unavailable,
                false,
            ),
            (
                "MASTERDOWN Topology with MASTER is down",
                Refusal::MasterDown,
                Unavailable,
                false,
            ),
            (
                "MOVED 866 127.0.0.1:7001",
                Refusal::Moved,
                InvalidConfig,
                false,
            ),
            (
                "NOAUTH Authentication required.",
                Refusal::NoAuth,
                Denied,
                false,
            ),
            (alone, Refusal::NoCluster, InvalidConfig, false),
            (denied, Refusal::NoPerm, Denied, false),
            (
                "ERR max number of clients reached",
                Refusal::TooManyClients,
                Unavailable,
                false,
            ),
            (
                "TRYAGAIN Multiple keys request",
                Refusal::TryAgain,
                Unavailable,
                false,
            ),
            (invalid, Refusal::WrongPass, Denied, false),
            (unknown, Refusal::Other, Protocol, false),
        ];
        check(&cases, str::to_owned);
    }

    #[test]
    fn errors_inside_scripts_are_read() {
        use ErrorKind::{Denied, Protocol, Unavailable};
        let full = "OOM command not allowed when used memory > 'maxmemory'.";
        let read_only = "READONLY You can't write against a read only replica.";
        let cases = [
            (full, Refusal::Full, Unavailable, false),
            (
                "MISCONF Redis is configured to save",
                Refusal::Misconf,
                Unavailable,
                false,
            ),
            (
                "NOREPLICAS Not enough good replicas",
                Refusal::NoReplicas,
                Unavailable,
                false,
            ),
            (read_only, Refusal::ReadOnly, Unavailable, false),
            (
                "WRONGTYPE Operation against a key",
                Refusal::WrongType,
                ErrorKind::Foreign,
                false,
            ),
        ];
        // Redis 7, and Redis 6.
        check(&cases, |line| {
            format!("{line} script: 0c66, on @user_script:1.")
        });
        check(&cases, |line| {
            format!("ERR Error running script (call to f_0c66): @user_script:1: -{line}")
        });

        // What came before in the script has happened.
        let cases = [
            (
                "ERR The user executing the script can't run this",
                Refusal::NoPerm,
                Denied,
                true,
            ),
            (
                "ERR ACL failure in script: User u has no",
                Refusal::NoPerm,
                Denied,
                true,
            ),
            (
                "ERR user_script:1: attempt to perform",
                Refusal::Other,
                Protocol,
                true,
            ),
        ];
        check(&cases, |line| {
            format!("{line} script: 0c66, on @user_script:1.")
        });
    }

    #[test]
    fn a_cluster_refers_to_another_node() {
        let to = |line| {
            let failure = Failure::refused(&"server".into(), reply(line));
            failure.redirection().map(str::to_owned)
        };
        assert_eq!(
            to("MOVED 866 10.0.0.1:7001").as_deref(),
            Some("10.0.0.1:7001")
        );
        assert_eq!(to("ASK 866 ::1:7001").as_deref(), Some("::1:7001"));
        assert_eq!(to("READONLY 866 10.0.0.1:7001"), None);
        assert_eq!(to("MOVED"), None);
    }
}
