use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What is tested, with the settings that make leases end often in a short run.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Backend {
    Cluster,
    MariaDb(Mode),
    Postgres(Mode),
    Quorum,
    Redis,
    Sentinel,
    Sqlite,
    ZooKeeper,
}

/// How a database keeps locks.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Mode {
    Advisory,
    Lease,
    Row,
}

impl Backend {
    pub(crate) const ALL: [Self; 12] = [
        Self::Sqlite,
        Self::Redis,
        Self::Sentinel,
        Self::Cluster,
        Self::Quorum,
        Self::ZooKeeper,
        Self::Postgres(Mode::Row),
        Self::Postgres(Mode::Lease),
        Self::Postgres(Mode::Advisory),
        Self::MariaDb(Mode::Row),
        Self::MariaDb(Mode::Lease),
        Self::MariaDb(Mode::Advisory),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::MariaDb(Mode::Advisory) => "mariadb-advisory",
            Self::MariaDb(Mode::Lease) => "mariadb-lease",
            Self::MariaDb(Mode::Row) => "mariadb-row",
            Self::Postgres(Mode::Advisory) => "postgres-advisory",
            Self::Postgres(Mode::Lease) => "postgres-lease",
            Self::Postgres(Mode::Row) => "postgres-row",
            Self::Quorum => "quorum",
            Self::Redis => "redis",
            Self::Sentinel => "sentinel",
            Self::Sqlite => "sqlite",
            Self::ZooKeeper => "zookeeper",
        }
    }

    /// What the URL of each client adds to that of the servers.
    pub(crate) fn parameters(self) -> String {
        match self {
            Self::Cluster | Self::Redis | Self::Sqlite => String::new(),
            // Without it, a master that dies takes the last renewals with it.
            Self::Sentinel => "?min-replica-acks=1".to_owned(),
            Self::Quorum => format!("?rejoin-delay={}s", LONG_TTL.as_secs()),
            Self::ZooKeeper => format!("?session-timeout={}s", SESSION.as_secs()),
            Self::MariaDb(Mode::Lease) | Self::Postgres(Mode::Lease) => "?mode=lease".to_owned(),
            Self::MariaDb(mode) | Self::Postgres(mode) => {
                let mode = if mode == Mode::Row { "row" } else { "advisory" };
                format!("?mode={mode}&session-timeout={}s", SESSION.as_secs())
            }
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown backend (known: {known})")
        })
    }
}

/// Session timeout where the lock lives with a session.
pub(crate) const SESSION: Duration = Duration::from_secs(4);

/// Leases that are acquired now and then among short ones of 1 to 4 s.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(8);
