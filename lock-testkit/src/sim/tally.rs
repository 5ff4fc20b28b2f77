use std::collections::BTreeMap;
use std::fmt;

use polylock_core::LostReason;

use super::fault::Fault;
use super::log::Book;

/// What happened in one history or in many, in numbers.
#[non_exhaustive]
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Locks that were acquired.
    pub acquisitions: u64,
    /// What was injected.
    pub faults: BTreeMap<Fault, u64>,
    /// Leases that passed to another task of the same process.
    pub hand_overs: u64,
    /// Histories.
    pub histories: u64,
    /// Locks that were lost before they were given back, those with `max_hold` not counted.
    pub leases_lost: u64,
    /// Increments of the unfenced counter that were overwritten.
    pub lost_increments: u64,
    /// Locks that were asked for.
    pub operations: u64,
    /// Renewals that extended a lease.
    pub renewals: u64,
    /// Writes of former holders that the fenced register refused.
    pub stale_writes: u64,
    /// What went wrong that must not.
    pub violations: u64,
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
        }
        book.faults
            .iter()
            .for_each(|(fault, n)| *self.faults.entry(*fault).or_default() += n);
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
        self.stale_writes += other.stale_writes;
        self.lost_increments += other.lost_increments;
        self.violations += other.violations;
    }

    /// How often a kind of fault was injected.
    pub fn faults(&self, fault: Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or(0)
    }
}

pub(super) fn count(n: usize) -> u64 {
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
        for (n, fault) in Fault::ALL.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{fault} {}", self.faults(*fault))?;
        }
        write!(
            f,
            "), leases lost {}, stale writes stopped {}, unfenced increments lost {}, \
             violations {}",
            self.leases_lost, self.stale_writes, self.lost_increments, self.violations
        )
    }
}
