use std::fmt;

use polylock_core::ErrorKind::{self, Denied, Foreign, InvalidConfig, Protocol, Unavailable};
use redis::ServerError;

/// The meaning of an error reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    Ask,
    Busy,
    ClusterDown,
    CrossSlot,
    Demoted,
    Full,
    Loading,
    MasterDown,
    Misconf,
    Moved,
    NoAuth,
    NoCluster,
    NoCommand,
    NoPerm,
    NoReplicas,
    NoScript,
    NoSentinel,
    Other,
    ReadOnly,
    TooManyClients,
    TryAgain,
    Upstream,
    WrongPass,
    WrongType,
}

impl Refusal {
    /// Reads an error reply.
    ///
    /// An error inside a script keeps its code since Redis 7. Earlier versions put `ERR Error running
    /// script` before it.
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
        match unknown_command(details) {
            Some("CLUSTER") => return Self::NoCluster,
            Some("SENTINEL") => return Self::NoSentinel,
            Some(_) => return Self::NoCommand,
            None => {}
        }
        if details.contains(UNKNOWN_IN_SCRIPT) {
            return Self::NoCommand;
        }
        if details.contains(DOWN_IN_SCRIPT) {
            return Self::ClusterDown;
        }
        if details.contains(MOVING_IN_SCRIPT) {
            return Self::TryAgain;
        }
        if UPSTREAM.iter().any(|text| details.starts_with(text)) {
            return Self::Upstream;
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
        let row = TABLE.iter().find(|row| row.1 == code && !code.is_empty());
        row.map(|row| row.0)
    }

    /// Whether a request that fails with this error may have changed something. Most errors occur at the first
    /// write or at the call itself.
    pub(crate) fn is_outcome_unknown(self, error: &ServerError) -> bool {
        let details = error.details().unwrap_or_default();
        let in_script = details.contains("script");
        match self {
            Self::Demoted | Self::Upstream => true,
            Self::NoCommand | Self::NoPerm | Self::TryAgain => in_script,
            // It may be of a proxy that has forwarded the request.
            Self::Other => in_script || !IMMEDIATE.iter().any(|text| details.contains(text)),
            _ => false,
        }
    }

    pub(crate) fn kind(self) -> ErrorKind {
        self.row().2
    }

    fn row(self) -> &'static RefusalRow {
        let row = TABLE.iter().find(|row| row.0 == self);
        row.expect("BUG: the table has every refusal")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().3)
    }
}

/// A refusal, the code that begins the reply (none if its text tells), and the error that it is.
type RefusalRow = (Refusal, &'static str, ErrorKind, &'static str);

#[rustfmt::skip]
const TABLE: &[RefusalRow] = &[
    (Refusal::Ask, "ASK", Unavailable, "is moving the key to another node"),
    (Refusal::Busy, "BUSY", Unavailable,
        "is kept busy by a script that does not end; SCRIPT KILL ends it"),
    (Refusal::ClusterDown, "CLUSTERDOWN", Unavailable,
        "is in a cluster that is down: CLUSTER INFO and CLUSTER NODES say which masters fail"),
    (Refusal::CrossSlot, "CROSSSLOT", InvalidConfig,
        "is in a cluster and was given keys of different slots: use redis-cluster://"),
    (Refusal::Demoted, "UNBLOCKED", Unavailable, "became a replica while it waited for others"),
    (Refusal::Full, "OOM", Unavailable, "has no memory left: raise maxmemory or remove data"),
    (Refusal::Loading, "LOADING", Unavailable, "is loading its data set"),
    (Refusal::MasterDown, "MASTERDOWN", Unavailable, "is a replica that has lost its master"),
    (Refusal::Misconf, "MISCONF", Unavailable,
        "cannot save its data and takes no writes (MISCONF): its log says why, often a full disk"),
    (Refusal::Moved, "MOVED", InvalidConfig,
        "is in a cluster and does not have this key: use redis-cluster://"),
    (Refusal::NoAuth, "NOAUTH", Denied,
        "asks for a user or a password, and the URL has none; that of Sentinels is sentinel-password"),
    (Refusal::NoCluster, "", InvalidConfig,
        "is no cluster: use redis://, or redis-sentinel:// for a Sentinel"),
    (Refusal::NoCommand, "", Denied,
        "does not know a command that locks need, which may have been renamed"),
    (Refusal::NoPerm, "NOPERM", Denied,
        "denies a command or a key to this user: see the list of ACL rules"),
    (Refusal::NoReplicas, "NOREPLICAS", Unavailable,
        "has fewer good replicas than min-replicas-to-write asks for, and takes no writes"),
    (Refusal::NoScript, "NOSCRIPT", Protocol, "does not keep scripts"),
    (Refusal::NoSentinel, "", InvalidConfig, "is no Sentinel: name one, or use redis://"),
    (Refusal::Other, "", Protocol, "answered with an error"),
    (Refusal::ReadOnly, "READONLY", Unavailable,
        "is a replica, which takes no writes: name its master"),
    (Refusal::TooManyClients, "", Unavailable, "has as many clients as its maxclients allows"),
    (Refusal::TryAgain, "TRYAGAIN", Unavailable, "is moving the keys to another node"),
    (Refusal::Upstream, "upstream", Unavailable, "is a proxy that got no reply of its server"),
    (Refusal::WrongPass, "WRONGPASS", Denied, "refuses this user or password"),
    (Refusal::WrongType, "WRONGTYPE", Foreign, "has something at the key that is no lock"),
];

/// The command that a server does not know. Redis 5 and 6 put it between backticks.
fn unknown_command(details: &str) -> Option<&str> {
    let quoted = details.strip_prefix("unknown command ")?;
    quoted.split(['\'', '`']).nth(1)
}

/// The same inside a script, without the name.
const UNKNOWN_IN_SCRIPT: &str = "command called from";

/// The first write of a script in a cluster that is down and answers reads (`cluster-allow-reads-when-down`).
const DOWN_IN_SCRIPT: &str = "while the cluster is down";

/// A script has deleted a key of a slot that moves, and uses it again.
const MOVING_IN_SCRIPT: &str = "attempted to access a non local key";

/// The text of an error reply without the arguments of the command, which include the id of a lease. `None` if it
/// repeats none.
pub(crate) fn without_arguments(error: &ServerError) -> Option<String> {
    let details = error.details()?;
    unknown_command(details)?;
    let end = details.find(", with args").unwrap_or(details.len());
    Some(details[..end].to_owned())
}

/// Errors of proxies, twemproxy and Envoy, about the server behind them; that of the row `upstream` is of Envoy too.
const UPSTREAM: &[&str] = &["Connection ", "upstream host"];

/// Errors of a server that did not execute a command. The last one is of Redis 6.0 for a later option of `XADD`.
const IMMEDIATE: &[&str] = &[
    "unknown command",
    "wrong number of arguments",
    "syntax error",
    "Invalid stream ID",
];

/// How a missing right looks inside a script: up to Redis 7.0, and from 7.2 on.
const DENIED_IN_SCRIPT: &[&str] = &[
    "The user executing the script can't",
    "ACL failure in script",
];

#[cfg(test)]
mod tests {
    use polylock_core::Error;

    use super::*;
    use crate::error::RedisFailure;

    fn reply(line: &str) -> ServerError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
        match value.expect("a reply") {
            redis::Value::ServerError(error) => error,
            other => panic!("{other:?}"),
        }
    }

    type Case = (&'static str, Refusal, ErrorKind);

    /// The replies as they are, or dressed as Redis does it where a script ran.
    fn check(cases: &[Case], is_unknown: bool, dress: fn(&str) -> String) {
        for (line, refusal, kind) in cases {
            let failure = RedisFailure::refused(&"server".into(), reply(&dress(line)));
            assert_eq!(failure.refusal(), Some(*refusal), "{line}");
            let error = Error::from(failure);
            assert_eq!(error.kind(), *kind, "{line}");
            assert_eq!(error.is_outcome_unknown(), is_unknown, "{line}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn replies_are_read() {
        let commands = [
            ("ASK 866 127.0.0.1:7001", Refusal::Ask, Unavailable),
            ("BUSY Redis is busy running a script.", Refusal::Busy, Unavailable),
            ("CLUSTERDOWN The cluster is down", Refusal::ClusterDown, Unavailable),
            ("CROSSSLOT Keys in request don't hash", Refusal::CrossSlot, InvalidConfig),
            ("LOADING Redis is loading", Refusal::Loading, Unavailable),
            ("MASTERDOWN Topology with MASTER is down", Refusal::MasterDown, Unavailable),
            ("MOVED 866 127.0.0.1:7001", Refusal::Moved, InvalidConfig),
            ("NOAUTH Authentication required.", Refusal::NoAuth, Denied),
            ("ERR This instance has cluster support disabled", Refusal::NoCluster, InvalidConfig),
            ("NOPERM this user may not run the 'evalsha' command", Refusal::NoPerm, Denied),
            ("NOSCRIPT No matching script.", Refusal::NoScript, Protocol),
            ("ERR unknown command 'CLUSTER', with args", Refusal::NoCluster, InvalidConfig),
            ("ERR unknown command 'SENTINEL', with args", Refusal::NoSentinel, InvalidConfig),
            ("ERR unknown command `SENTINEL`, with args", Refusal::NoSentinel, InvalidConfig),
            ("ERR unknown command 'GET', with args: 'SENTINEL'", Refusal::NoCommand, Denied),
            ("ERR max number of clients reached", Refusal::TooManyClients, Unavailable),
            ("TRYAGAIN Multiple keys request", Refusal::TryAgain, Unavailable),
            ("WRONGPASS invalid username-password pair", Refusal::WrongPass, Denied),
            ("ERR unknown command `EVALSHA`, with args beginning with: ", Refusal::NoCommand, Denied),
        ];
        check(&commands, false, str::to_owned);

        let first_writes = [
            ("OOM command not allowed when used memory > 'maxmemory'.", Refusal::Full, Unavailable),
            ("MISCONF Redis is configured to save", Refusal::Misconf, Unavailable),
            ("NOREPLICAS Not enough good replicas", Refusal::NoReplicas, Unavailable),
            ("READONLY You can't write against a replica.", Refusal::ReadOnly, Unavailable),
            ("ERR Script attempted to execute a write command while the cluster is down and readonly",
                Refusal::ClusterDown, Unavailable),
            ("WRONGTYPE Operation against a key", Refusal::WrongType, Foreign),
        ];
        let in_script = |line: &str| format!("{line} script: 0c66, on @user_script:1.");
        check(&first_writes, false, in_script);
        // Redis 6.
        check(&first_writes, false, |line| {
            format!("ERR Error running script (call to f_0c66): @user_script:1: -{line}")
        });

        // What came before in the script has happened.
        let later = [
            ("ERR The user executing the script can't run this", Refusal::NoPerm, Denied),
            ("ERR ACL failure in script: User u has no", Refusal::NoPerm, Denied),
            ("ERR Unknown Redis command called from script", Refusal::NoCommand, Denied),
            ("ERR Script attempted to access a non local key in a cluster node", Refusal::TryAgain,
                Unavailable),
            ("ERR user_script:1: attempt to perform", Refusal::Other, Protocol),
        ];
        check(&later, true, in_script);

        // The write that replicas were to have.
        let waited =
            [("UNBLOCKED force unblock from blocking operation", Refusal::Demoted, Unavailable)];
        check(&waited, true, str::to_owned);

        // A proxy has forwarded the request, or not.
        let of_proxies = [
            ("upstream failure", Refusal::Upstream, Unavailable),
            ("no upstream host", Refusal::Upstream, Unavailable),
            ("ERR Connection timed out", Refusal::Upstream, Unavailable),
            ("ERR backend gone", Refusal::Other, Protocol),
        ];
        check(&of_proxies, true, str::to_owned);

        let of_all = commands.iter().chain(&first_writes).chain(&later);
        let of_all = of_all.chain(&waited).chain(&of_proxies);
        let read: Vec<_> = of_all.map(|case| case.1).collect();
        assert!(TABLE.iter().all(|row| read.contains(&row.0)), "one has no case");
    }

    #[test]
    fn a_cluster_refers_to_another_node() {
        let to = |line| {
            let failure = RedisFailure::refused(&"server".into(), reply(line));
            failure.redirection().map(|(to, _)| to.to_owned())
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
