use std::time::{Duration, UNIX_EPOCH};

use polylock_core::admin::{HolderInfo, LockInfo, Record};
use polylock_core::engine::{LeaseId, Moment};
use polylock_core::{FencingToken, Label, LockKey, Mode};

/// One row of the table.
///
/// Slot 0 is the lock itself: it counts the tokens, and has the exclusive holder. Each further slot has
/// a shared holder or one permit, and from [`QUEUE`] on a waiter in the queue. The last slot has the
/// record of a holder. Rows stay after a release and are reused.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct LockRow {
    pub(crate) slot: u32,
    /// Largest token that was issued or reserved for the key; in slot 0 only.
    pub(crate) last_token: u64,
    pub(crate) holder: Option<SlotHolder>,
    /// The claim of an exclusive waiter against new shared holders; in slot 0 without a holder only.
    pub(crate) claimed: Option<Claimed>,
    pub(crate) broken: Option<Broken>,
    /// In the last slot only.
    pub(crate) record: Option<Record>,
    /// Unix time of the last change, for the purge; of a record until when it is kept.
    pub(crate) changed_at: u64,
}

/// The first slot of waiters, whose `token` is their order of arrival.
pub(crate) const QUEUE: u32 = 1 << 31;

/// The slot of the record, behind all waiters.
pub(crate) const RECORD: u32 = u32::MAX;

/// The holder of a slot, as last written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SlotHolder {
    pub(crate) id: LeaseId,
    pub(crate) token: u64,
    /// The limit that a permit was taken with, 0 for the other modes.
    pub(crate) permits: u32,
    /// The boot that `expires` is counted from.
    pub(crate) boot: BootId,
    /// By how many nanoseconds the clock of `expires` is ahead of the kernel's, as in a time namespace;
    /// unknown if the system does not report it.
    pub(crate) shift: Option<i64>,
    pub(crate) expires: Moment,
    /// When it ends by the reader's clock, where that is not `expires`. Not stored.
    pub(crate) end: Option<Moment>,
    /// How long it lasts from one renewal to the next.
    pub(crate) ttl: Duration,
    pub(crate) label: String,
    /// Unix time, microseconds.
    pub(crate) since: u64,
}

/// A recent claim of an exclusive waiter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Claimed {
    /// Of the claimant; a version that compares it heeds no claim of another boot.
    pub(crate) boot: BootId,
    /// By the clock of the kernel, which no time namespace shifts.
    pub(crate) until: Moment,
}

/// Whose lock an administrator took, until that happens to the slot again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Broken {
    pub(crate) id: LeaseId,
    pub(crate) reason: String,
}

/// One run of the machine, or a container that has been given a boot id of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BootId(pub(crate) [u8; 16]);

/// When and where an operation takes place.
///
/// The clocks are read under the write lock: a lease that has expired then has expired for all later
/// readers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadContext {
    pub(crate) boot: BootId,
    /// As that of a [`SlotHolder`].
    pub(crate) shift: Option<i64>,
    pub(crate) moment: Moment,
    /// Unix time in microseconds, for tokens, for the purge and for humans. It does not end a lease by
    /// itself.
    pub(crate) unix: u64,
    /// No smaller token is issued, not even for a key whose row is gone.
    pub(crate) floor: u64,
}

impl ReadContext {
    /// The moment by the clock of the kernel, if that is known.
    pub(crate) fn kernel_moment(&self) -> Option<Moment> {
        let nanos = i128::from(self.moment.as_nanos()) - i128::from(self.shift?);
        Some(Moment::from_nanos(u64::try_from(nanos).ok()?))
    }
}

impl LockRow {
    pub(crate) fn new(slot: u32) -> Self {
        Self {
            slot,
            ..Self::default()
        }
    }

    pub(crate) fn set_holder(&mut self, holder: SlotHolder) {
        self.holder = Some(holder);
        self.claimed = None;
    }

    /// The holder, if its lease has not expired.
    pub(crate) fn held_leases(&self, ctx: &ReadContext) -> Option<&SlotHolder> {
        let holder = self.holder.as_ref();
        holder.filter(|holder| holder.ends(ctx) > ctx.moment)
    }

    pub(crate) fn is_held_by(&self, id: LeaseId) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.id == id)
    }

    /// Whether the slot has had no holder for as long as idle rows are kept.
    pub(crate) fn is_idle(&self, ctx: &ReadContext, retention: Duration) -> bool {
        let retention = u64::try_from(retention.as_micros()).unwrap_or(u64::MAX);
        let kept_until = self.changed_at.saturating_add(retention);
        self.held_leases(ctx).is_none() && kept_until <= ctx.unix
    }
}

impl SlotHolder {
    /// When it ends by the clock of the scene.
    pub(crate) fn ends(&self, ctx: &ReadContext) -> Moment {
        let stored = || match self.boot == ctx.boot {
            true => self.expires,
            false => Moment::from_nanos(0),
        };
        self.end.unwrap_or_else(stored)
    }

    pub(crate) fn info(&self, ctx: &ReadContext) -> HolderInfo {
        let mut info = holder_info(&self.label, Some(self.token), Some(self.since));
        info.time_left = Some(self.ends(ctx).since(ctx.moment));
        info
    }
}

/// A lock with a row that polylock has not written: it is not free, and requests for it fail.
pub(crate) fn unreadable(key: LockKey) -> LockInfo {
    let holder = HolderInfo::new(Label::of_note("unreadable row"));
    LockInfo::new(key, Mode::Exclusive, vec![holder])
}

/// A holder as administrators see it; `since` is Unix time in microseconds.
pub(crate) fn holder_info(label: &str, token: Option<u64>, since: Option<u64>) -> HolderInfo {
    let mut info = HolderInfo::new(Label::decode(label));
    info.token = token.map(FencingToken::new);
    info.since = since.and_then(|since| UNIX_EPOCH.checked_add(Duration::from_micros(since)));
    info
}
