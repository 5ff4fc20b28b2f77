//! The rows of a lock in the table.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polylock_core::LockKey;
use polylock_core::engine::{LeaseId, Moment};

use crate::table::{
    BootId, Broken, CLAIM, Claimed, LockRow, LockRows, QUEUE, ReadContext, SlotHolder,
};
use crate::wire::SqlValue;

/// The columns that are read, after the clock of the database.
pub(crate) const COLUMNS: [&str; 15] = [
    "lock_key",
    "slot",
    "version",
    "last_token",
    "id",
    "token",
    "permits",
    "label",
    "acquired_at",
    "ttl",
    "expires_at",
    "claimed_until",
    "broken_id",
    "broken_reason",
    "changed_at",
];

/// The rows of a key as they were at some time.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) key: LockKey,
    /// That of slot 0, which grows with each change of the key; `None` if there is no such row.
    pub(crate) version: Option<i64>,
    /// When the rows were read, by the clock of the database.
    pub(crate) ctx: ReadContext,
    pub(crate) lock: LockRows,
}

/// Sorts rows by key; `None` for a key with a row that polylock has not written.
pub(crate) fn read(rows: &[Vec<SqlValue>]) -> BTreeMap<LockKey, Option<Stored>> {
    let mut found = BTreeMap::new();
    for values in rows {
        let key = values.get(1).and_then(SqlValue::bytes);
        // A name that is not a key cannot be locked either.
        let Some(key) = key.and_then(|key| LockKey::from_stored(key).ok()) else {
            continue;
        };
        let stored = found.entry(key.clone()).or_insert_with(|| {
            Some(Stored {
                key,
                version: None,
                ctx: context_at(u64::MAX),
                lock: LockRows::default(),
            })
        });
        if let Some(known) = stored
            && read_row(values, known).is_none()
        {
            *stored = None;
        }
    }
    found
}

fn read_row(values: &[SqlValue], stored: &mut Stored) -> Option<()> {
    let [
        now,
        _key,
        slot,
        version,
        last_token,
        id,
        token,
        permits,
        label,
        acquired_at,
        ttl,
        expires_at,
        claimed_until,
        broken_id,
        broken_reason,
        changed_at,
    ] = values
    else {
        return None;
    };
    // PostgreSQL reads its clock for each row. The earliest reading ends no lease too early.
    let ctx = context_at(number(now)?.min(stored.ctx.unix));
    let mut row = LockRow::new(u32::try_from(number(slot)?).ok()?);
    row.last_token = number(last_token)?;
    row.changed_at = number(changed_at)?;
    if !id.is_null() {
        row.holder = Some(SlotHolder {
            id: lease_id(id)?,
            token: number(token)?,
            permits: u32::try_from(number(permits)?).ok()?,
            boot: BOOT,
            shift: Some(0),
            expires: moment(number(expires_at)?),
            end: None,
            ttl: Some(Duration::from_micros(number(ttl)?)).filter(|ttl| !ttl.is_zero())?,
            label: text(label)?,
            since: number(acquired_at)?,
        });
    }
    let until = moment(number(claimed_until)?);
    // A claim further in the future was made before the clock was set back.
    if until > ctx.moment && until <= ctx.moment + CLAIM {
        row.claimed = Some(Claimed { boot: BOOT, until });
    }
    if !broken_id.is_null() {
        row.broken = Some(Broken {
            id: lease_id(broken_id)?,
            reason: text(broken_reason)?,
        });
    }
    let version = i64::try_from(number(version)?).ok()?;
    if row.slot == 0 {
        stored.version = Some(version);
    }
    stored.ctx = ctx;
    stored.lock.load(row);
    Some(())
}

/// The rows to write for a lock: for each row the key, the version of the lock that was read, the slot,
/// and [`FIELDS`]. The row of slot 0 is always included.
pub(crate) fn write(stored: &Stored) -> Vec<Vec<SqlValue>> {
    let lock = &stored.lock;
    let changed: BTreeSet<_> = lock.changed().map(|row| row.slot).collect();
    let is_shared = |row: &&LockRow| (1..QUEUE).contains(&row.slot) && row.holder.is_some();
    let shared_leases = lock.rows().filter(is_shared).count() as u64;
    let rows = lock.rows();
    let rows = rows.filter(|row| row.slot == 0 || changed.contains(&row.slot));
    rows.map(|row| write_row(stored, row, if row.slot == 0 { shared_leases } else { 0 }))
        .collect()
}

fn write_row(stored: &Stored, row: &LockRow, shared_leases: u64) -> Vec<SqlValue> {
    let holder = row.holder.as_ref();
    let broken = row.broken.as_ref();
    let of_holder = |field: fn(&SlotHolder) -> u64| SqlValue::from(holder.map_or(0, field));
    vec![
        SqlValue::from(stored.key.as_bytes()),
        SqlValue::from(stored.version),
        SqlValue::from(u64::from(row.slot)),
        SqlValue::from(row.last_token),
        SqlValue::from(shared_leases),
        SqlValue::from(holder.map(|holder| &holder.id.as_bytes()[..])),
        of_holder(|holder| holder.token),
        of_holder(|holder| holder.permits.into()),
        SqlValue::from(holder.map_or("", |holder| holder.label.as_str())),
        of_holder(|holder| holder.since),
        of_holder(|holder| whole_micros(holder.ttl)),
        of_holder(|holder| micros(holder.expires)),
        SqlValue::from(row.claimed.map_or(0, |claimed| micros(claimed.until))),
        SqlValue::from(broken.map(|broken| &broken.id.as_bytes()[..])),
        SqlValue::from(broken.map(|broken| broken.reason.as_str())),
    ]
}

/// The columns that are written. A write also increments the version of the lock, and stores the time of
/// the change.
pub(crate) const FIELDS: [(&str, Field); 12] = [
    ("last_token", Field::Number),
    ("sharers", Field::Number),
    ("id", Field::Bytes),
    ("token", Field::Number),
    ("permits", Field::Number),
    ("label", Field::Text),
    ("acquired_at", Field::Number),
    ("ttl", Field::Number),
    ("expires_at", Field::Number),
    ("claimed_until", Field::Number),
    ("broken_id", Field::Bytes),
    ("broken_reason", Field::Text),
];

/// What kind of column a value goes into.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Field {
    Bytes,
    Number,
    Text,
}

/// Leases in a database outlive every boot.
pub(super) const BOOT: BootId = BootId([0; 16]);

/// The largest number of a database.
const NEVER: u64 = i64::MAX as u64;

/// Unix microseconds by the clock of the database.
pub(crate) fn context_at(now: u64) -> ReadContext {
    ReadContext {
        boot: BOOT,
        shift: Some(0),
        moment: moment(now),
        unix: now,
        floor: 0,
    }
}

pub(crate) fn moment(micros: u64) -> Moment {
    Moment::from_nanos(micros.saturating_mul(1000))
}

fn micros(moment: Moment) -> u64 {
    match moment {
        Moment::NEVER => NEVER,
        moment => moment.as_nanos() / 1000,
    }
}

/// At least one, because a lease needs some time, and at most what can be added to a time.
pub(crate) fn whole_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(MAX_TIME)
        .clamp(1, MAX_TIME)
}

const MAX_TIME: u64 = NEVER / 4;

fn number(value: &SqlValue) -> Option<u64> {
    value.int().and_then(|number| u64::try_from(number).ok())
}

fn text(value: &SqlValue) -> Option<String> {
    String::from_utf8(value.bytes()?.to_vec()).ok()
}

fn lease_id(value: &SqlValue) -> Option<LeaseId> {
    Some(LeaseId::from_bytes(value.bytes()?.try_into().ok()?))
}
