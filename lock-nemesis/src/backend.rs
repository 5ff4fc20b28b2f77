use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

/// What is tested, with the settings that make leases end often in a short run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum BackendKind {
    Sqlite,
    Redis,
    Sentinel,
    Cluster,
    Quorum,
    #[value(name = "zookeeper")]
    ZooKeeper,
    Etcd,
    PostgresRow,
    PostgresLease,
    PostgresAdvisory,
    #[value(name = "mariadb-row")]
    MariaDbRow,
    #[value(name = "mariadb-lease")]
    MariaDbLease,
    #[value(name = "mariadb-advisory")]
    MariaDbAdvisory,
}

impl BackendKind {
    /// Whether locks live with sessions of a database.
    pub(crate) fn has_sessions(self) -> bool {
        matches!(
            self,
            Self::MariaDbAdvisory | Self::MariaDbRow | Self::PostgresAdvisory | Self::PostgresRow
        )
    }

    /// How long an election may have no leader while no fault lasts: one lease or session, and what clients and
    /// servers need to go on after a fault.
    pub(crate) fn max_leaderless(self) -> Duration {
        let after_faults = Duration::from_secs(match self {
            // A replica that was away has to be in step again before anything is granted.
            Self::Sentinel => 26,
            // The servers elect a leader of their own, and sessions begin to end when it leads.
            Self::ZooKeeper => 10,
            // The next leader of the servers gives every lease its whole ttl from then on.
            Self::Etcd => 8,
            _ if self.has_sessions() => 6,
            _ => 3,
        });
        self.election_lease() + after_faults
    }

    /// For how long a leader that cannot renew its lease may rely on it.
    pub(crate) fn election_lease(self) -> Duration {
        match self.has_sessions() || self == Self::ZooKeeper {
            true => SESSION,
            false => ELECTION_TTL,
        }
    }

    /// Whether its servers have a wall clock that can be set: those of etcd read that of the machine past the C
    /// library, and no lock depends on it.
    pub(crate) fn has_clocks(self) -> bool {
        !matches!(self, Self::Etcd | Self::Sqlite)
    }

    /// What the URL of each client adds to that of the servers.
    pub(crate) fn parameters(self) -> String {
        let session = |mode| format!("?mode={mode}&session-timeout={}s", SESSION.as_secs());
        match self {
            Self::Cluster | Self::Etcd | Self::Redis | Self::Sqlite => String::new(),
            // Without it, a master that dies takes the last renewals with it.
            Self::Sentinel => "?min-replica-acks=1".to_owned(),
            Self::Quorum => format!("?rejoin-delay={}s", LONG_TTL.as_secs()),
            Self::ZooKeeper => format!("?session-timeout={}s", SESSION.as_secs()),
            Self::MariaDbLease | Self::PostgresLease => "?mode=lease".to_owned(),
            Self::MariaDbRow | Self::PostgresRow => session("row"),
            Self::MariaDbAdvisory | Self::PostgresAdvisory => session("advisory"),
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Session timeout where the lock lives with a session.
pub(crate) const SESSION: Duration = Duration::from_secs(4);

/// Leases that are acquired now and then among short ones of 1 to 4 s.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(8);

/// Lease of the leader of the election.
pub(crate) const ELECTION_TTL: Duration = Duration::from_secs(3);
