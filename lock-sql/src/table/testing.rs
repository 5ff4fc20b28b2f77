//! Short names for what the tests of this folder are about.

use std::num::NonZeroU32;
use std::time::Duration;

use polylock_core::engine::{LeaseId, Moment};
use polylock_core::{LockKey, Mode, RenewalRequest};

use super::{BootId, LockRow, LockRows, ReadContext, SlotHolder, SqlClaim};

pub(crate) const EXCLUSIVE: Mode = Mode::Exclusive;
pub(super) const SHARED: Mode = Mode::Shared;
pub(crate) const TTL: u64 = 30;

pub(super) fn permit(limit: u32) -> Mode {
    Mode::Permit {
        limit: NonZeroU32::new(limit).unwrap(),
    }
}

pub(crate) fn id(n: u8) -> LeaseId {
    LeaseId::from_bytes([n; 16])
}

/// A moment so many seconds after boot.
pub(crate) fn at(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

/// That moment, with a wall clock that shows a million microseconds more for each second.
pub(crate) fn now(seconds: u64) -> ReadContext {
    ReadContext {
        boot: BootId([7; 16]),
        shift: Some(0),
        moment: at(seconds),
        unix: (1000 + seconds) * 1_000_000,
        floor: 0,
    }
}

/// A renewal for so many seconds.
pub(super) fn due(n: u8, seconds: u64) -> RenewalRequest {
    let key = LockKey::new("k").unwrap();
    RenewalRequest::new(key, id(n), Duration::from_secs(seconds))
}

pub(crate) fn claim(n: u8, mode: Mode) -> SqlClaim {
    let label = format!("host=h{n}&pid={n}");
    SqlClaim {
        id: id(n),
        mode,
        ttl: Duration::from_secs(TTL),
        label,
        waits: n % 2 == 1,
        ticket: None,
        queues: true,
        is_queued: false,
        is_notified: false,
    }
}

pub(crate) fn holder(n: u8, expires: u64) -> SlotHolder {
    SlotHolder {
        id: id(n),
        token: u64::from(n),
        permits: 0,
        boot: now(0).boot,
        shift: Some(0),
        expires: at(expires),
        end: None,
        ttl: Duration::from_secs(TTL),
        label: format!("host=h{n}&pid={n}"),
        since: now(0).unix,
    }
}

impl SlotHolder {
    pub(super) fn with_permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    pub(super) fn of_another_boot(mut self) -> Self {
        self.boot = BootId([8; 16]);
        self
    }
}

pub(super) fn lock(holders: &[(u32, SlotHolder)]) -> LockRows {
    let mut lock = LockRows::default();
    for (slot, holder) in holders {
        let mut row = LockRow::new(*slot);
        row.holder = Some(holder.clone());
        lock.load(row);
    }
    lock
}
