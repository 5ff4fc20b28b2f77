//! The faults that may give a lock to two holders, by docs/guarantees.md. Fencing tokens have to
//! stop every stale write of these as well.

use std::time::Duration;

use crate::backend::{BackendKind, LONG_TTL, SESSION};
use crate::judge::Struck;

/// A verdict *can break* or *holds with fencing* of docs/guarantees.md.
#[derive(Debug)]
pub(crate) struct Exception {
    /// The faults of the nemesis that make it happen.
    pub(crate) faults: &'static [&'static str],
    /// Without any, all.
    pub(crate) backends: &'static [BackendKind],
    /// The row of the table.
    pub(crate) row: &'static str,
    /// How long the lock may have two holders, and how long after the fault that may begin: the first
    /// holder learns of its loss at its next renewal, or at the end of its lease.
    pub(crate) longest: Duration,
    /// Whether it takes another fault besides, such as a node that missed the grant.
    pub(crate) together: bool,
    /// Whether only a grant that was not replicated is affected: one from a second before the fault
    /// began until two seconds after, or any if another fault had kept the replica away until then.
    pub(crate) unreplicated: bool,
}

impl Exception {
    const fn new(
        row: &'static str,
        faults: &'static [&'static str],
        backends: &'static [BackendKind],
    ) -> Self {
        Self {
            faults,
            backends,
            row,
            longest: LONG_TTL,
            together: false,
            unreplicated: false,
        }
    }

    const fn lasting(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }
}

pub(crate) static EXCEPTIONS: &[Exception] = &[
    Exception::new("the clock of the wall jumps", &["server-clock"], ONE_MASTER),
    Exception::new(
        "the clock of the server jumps",
        &["server-clock"],
        &[BackendKind::PostgresLease, BackendKind::MariaDbLease],
    ),
    Exception {
        // A minority may jump; with a node that missed the grant it is none.
        together: true,
        ..Exception::new(
            "the clock of the wall jumps",
            &["server-clock"],
            &[BackendKind::Quorum],
        )
    },
    Exception::new(
        "the store restarts without what it acknowledged (no persistence, an old snapshot)",
        &["disk-full", "server-forget"],
        ONE_MASTER,
    ),
    Exception {
        unreplicated: true,
        ..Exception::new(
            "a failover loses what was not replicated",
            &LEADERS,
            &[BackendKind::Sentinel],
        )
    },
    // `cluster-node-timeout`, which is a second, and a third of the longest lease, rounded up.
    Exception::new(
        "a failover loses what was not replicated",
        &LEADERS,
        &[BackendKind::Cluster],
    )
    .lasting(Duration::from_millis(4_500)),
    Exception::new(
        "the session is ended by an administrator (`pg_terminate_backend`, `KILL`)",
        &["replies-lost", "reset", "session-end"],
        &[
            BackendKind::MariaDbAdvisory,
            BackendKind::MariaDbRow,
            BackendKind::PostgresAdvisory,
            BackendKind::PostgresRow,
        ],
    )
    .lasting(SESSION),
    // PostgreSQL ends idle sessions by its wall clock.
    Exception::new(
        "the clock of the server jumps",
        &["server-clock"],
        &[BackendKind::PostgresAdvisory, BackendKind::PostgresRow],
    )
    .lasting(SESSION),
    Exception::new("an operator breaks the lock", &["admin-break"], &[]),
];

const ONE_MASTER: &[BackendKind] = &[
    BackendKind::Redis,
    BackendKind::Sentinel,
    BackendKind::Cluster,
];

/// How long a replica that was away takes to have the data of its master.
const RESYNC: Duration = Duration::from_secs(4);

/// What can make another server lead.
const LEADERS: [&str; 5] = [
    "failover",
    "power-loss",
    "server-freeze",
    "server-kill",
    "split",
];

/// The row that allows two holders from this moment on, for so long, of whom the first was granted
/// the lock at `first`. None allows them for longer than the longest `lease` of the key.
pub(crate) fn find(
    backend: BackendKind,
    faults: &[Struck],
    first: u64,
    begins: u64,
    overlap: Duration,
    lease: Duration,
) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|exception| {
        let longest = exception.longest.min(lease);
        let shows = |fault: &&Struck| {
            let is_own = |other: &&Struck| exception.faults.contains(&other.name);
            let was_away = || {
                let mut others = faults.iter().filter(is_own);
                others.any(|other| {
                    other.injected < fault.injected && other.shows_at(fault.injected, RESYNC)
                })
            };
            let is_met = !exception.unreplicated || fault.began_about(first) || was_away();
            is_met && fault.shows_at(begins, longest)
        };
        let names = || faults.iter().filter(shows).map(|fault| fault.name);
        let is_own = |name: &str| exception.faults.contains(&name);
        (exception.backends.is_empty() || exception.backends.contains(&backend))
            && overlap <= longest
            && names().any(is_own)
            && (!exception.together || names().any(|name| !is_own(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exception_names_a_row_of_the_guarantees() {
        let guarantees = include_str!("../../docs/guarantees.md");
        for exception in EXCEPTIONS {
            let row = format!("| {} |", exception.row);
            let line = guarantees.lines().find(|line| line.starts_with(&row));
            let line = line.unwrap_or_else(|| panic!("no row {:?}", exception.row));
            let allows = ["can break", "holds with fencing", "not tested"];
            let is_allowed = allows.iter().any(|verdict| line.contains(verdict));
            assert!(is_allowed, "{line}");
        }
    }
}
