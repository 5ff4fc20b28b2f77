use std::collections::BTreeMap;
use std::fmt;

use lock_core::LostReason;

use super::fault::Fault;
use super::log::Book;

/// What happened in one history or in many, in numbers.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    histories: u64,
    operations: u64,
    acquisitions: u64,
    renewals: u64,
    hand_overs: u64,
    faults: BTreeMap<Fault, u64>,
    leases_lost: u64,
    stolen: u64,
    stale_writes: u64,
    lost_increments: u64,
    violations: u64,
}

impl Tally {
    pub(super) fn count(&mut self, book: &Book, violations: usize) {
        let lost = |(_, reason): &(_, LostReason)| *reason != LostReason::MaxHold;
        self.histories += 1;
        self.violations += count(violations);
        self.renewals += book.renewals;
        for operation in &book.operations {
            self.operations += 1;
            self.acquisitions += u64::from(operation.acquired_at().is_some());
            self.leases_lost += u64::from(operation.lost.as_ref().is_some_and(lost));
            let reason = operation.lost.map(|(_, reason)| reason);
            self.stolen += u64::from(reason == Some(LostReason::Stolen));
        }
        book.faults
            .iter()
            .for_each(|(fault, n)| *self.faults.entry(*fault).or_default() += n);
    }

    pub(super) fn count_hand_overs(&mut self, n: usize) {
        self.hand_overs += count(n);
    }

    pub(super) fn count_stale_write(&mut self) {
        self.stale_writes += 1;
    }

    pub(super) fn count_lost_increments(&mut self, n: usize) {
        self.lost_increments += count(n);
    }

    /// Adds the numbers of other histories.
    pub fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.acquisitions += other.acquisitions;
        self.renewals += other.renewals;
        self.hand_overs += other.hand_overs;
        other
            .faults
            .iter()
            .for_each(|(fault, n)| *self.faults.entry(*fault).or_default() += n);
        self.leases_lost += other.leases_lost;
        self.stolen += other.stolen;
        self.stale_writes += other.stale_writes;
        self.lost_increments += other.lost_increments;
        self.violations += other.violations;
    }

    /// Leases that passed to another task of the same process.
    #[must_use]
    pub fn hand_overs(&self) -> u64 {
        self.hand_overs
    }

    /// Histories.
    #[must_use]
    pub fn histories(&self) -> u64 {
        self.histories
    }

    /// Locks that were lost before they were given back, those with `max_hold` not counted.
    #[must_use]
    pub fn leases_lost(&self) -> u64 {
        self.leases_lost
    }

    /// Locks that the store did not know any more when they were renewed.
    #[must_use]
    pub fn stolen(&self) -> u64 {
        self.stolen
    }

    /// Writes of former holders that the fenced register refused.
    #[must_use]
    pub fn stale_writes(&self) -> u64 {
        self.stale_writes
    }

    /// What went wrong that must not.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// How often a kind of fault was injected.
    #[must_use]
    pub fn faults(&self, fault: Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or(0)
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// One line for a report.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "histories {}, operations {}, acquisitions {}, hand-overs {}, renewals {}, faults (",
            self.histories, self.operations, self.acquisitions, self.hand_overs, self.renewals
        )?;
        for (n, fault) in Fault::ALL.into_iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{fault} {}", self.faults(fault))?;
        }
        write!(
            f,
            "), leases lost {}, stale writes stopped {}, unfenced increments lost {}, \
             violations {}",
            self.leases_lost, self.stale_writes, self.lost_increments, self.violations
        )
    }
}
