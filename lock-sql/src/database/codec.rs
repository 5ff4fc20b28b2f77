//! How a lock stands in its row.

use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::{LeaseId, Moment};

use super::shared;
use crate::table::{BootId, Broken, CLAIM, Claimed, Holder, ReadContext, Record, Row};
use crate::wire::Value;

/// What is read of a row, in the order of [`read`], after the clock of the database.
pub(crate) const COLUMNS: [&str; 15] = [
    "lock_key",
    "version",
    "last_token",
    "id",
    "token",
    "label",
    "acquired_at",
    "ttl",
    "beat",
    "expires_at",
    "shared",
    "claimed_until",
    "broken_id",
    "broken_reason",
    "changed_at",
];

/// A row as it was at some time.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) key: LockKey,
    /// Grows with each change of what is here.
    pub(crate) version: i64,
    /// When it was read, by the clock of the database.
    pub(crate) read_context: ReadContext,
    pub(crate) record: Record,
}

/// Reads the clock and the columns; `None` if polylock has not written them.
pub(crate) fn read(values: &[Value]) -> Option<Stored> {
    let [
        now,
        key,
        version,
        last_token,
        id,
        token,
        label,
        acquired_at,
        ttl,
        beat,
        expires_at,
        others,
        claimed_until,
        broken_id,
        broken_reason,
        changed_at,
    ] = values
    else {
        return None;
    };
    let read_context = read_context(number(now)?);
    let mut row = Row::new(0);
    row.last_token = number(last_token)?;
    row.changed_at = number(changed_at)?;
    if !id.is_null() {
        row.holder = Some(Holder {
            id: lease_id(id)?,
            token: number(token)?,
            permits: 0,
            boot: BOOT,
            shift: Some(0),
            expires: moment(number(expires_at)?),
            end: None,
            ttl: Some(Duration::from_micros(number(ttl)?)).filter(|ttl| !ttl.is_zero())?,
            beat: number(beat)?,
            label: text(label)?,
            since: number(acquired_at)?,
        });
    }
    let until = moment(number(claimed_until)?);
    // A claim that is further away was made by a clock that has been set back since.
    if until > read_context.moment && until <= read_context.moment + CLAIM {
        row.claimed = Some(Claimed { boot: BOOT, until });
    }
    if !broken_id.is_null() {
        row.broken = Some(Broken {
            id: lease_id(broken_id)?,
            reason: text(broken_reason)?,
        });
    }
    let mut record = Record::default();
    record.load(row);
    if !others.is_null() {
        shared::read(others.bytes()?)?
            .into_iter()
            .for_each(|row| record.load(row));
    }
    Some(Stored {
        key: LockKey::from_stored(key.bytes()?).ok()?,
        version: version.int().filter(|version| *version >= 0)?,
        read_context,
        record,
    })
}

/// What a changed lock becomes in its row, in the order of [`FIELDS`].
pub(crate) fn write(record: &Record, read_context: &ReadContext) -> [Value; FIELDS.len()] {
    let mut rows: Vec<Row> = record.rows().cloned().collect();
    tidy(&mut rows, read_context);
    let mut free_at = 0;
    for holder in rows.iter().filter_map(|row| row.held_leases(read_context)) {
        free_at = free_at.max(micros(holder.expires));
    }
    let (lock, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.slot == 0);
    let lock = lock.first().copied();
    let holder = lock.and_then(|lock| lock.holder.as_ref());
    let broken = lock.and_then(|lock| lock.broken.as_ref());
    let claimed = lock.and_then(|lock| lock.claimed);
    let of_holder = |field: fn(&Holder) -> u64| Value::from(holder.map_or(0, field));
    [
        Value::from(lock.map_or(0, |lock| lock.last_token)),
        Value::from(holder.map(|holder| &holder.id.as_bytes()[..])),
        of_holder(|holder| holder.token),
        Value::from(holder.map_or("", |holder| holder.label.as_str())),
        of_holder(|holder| holder.since),
        of_holder(|holder| whole_micros(holder.ttl)),
        of_holder(|holder| holder.beat),
        of_holder(|holder| micros(holder.expires)),
        Value::from(free_at),
        Value::from(shared::write(others.into_iter())),
        Value::from(claimed.map_or(0, |claimed| micros(claimed.until))),
        Value::from(broken.map(|broken| &broken.id.as_bytes()[..])),
        Value::from(broken.map(|broken| broken.reason.as_str())),
    ]
}

/// What is written of a row; besides, its version grows and the time of the change is noted.
pub(crate) const FIELDS: [(&str, Field); 13] = [
    ("last_token", Field::Number),
    ("id", Field::Bytes),
    ("token", Field::Number),
    ("label", Field::Text),
    ("acquired_at", Field::Number),
    ("ttl", Field::Number),
    ("beat", Field::Number),
    ("expires_at", Field::Number),
    ("free_at", Field::Number),
    ("shared", Field::Text),
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

/// Drops what nobody asks for any more. A lock that nobody shares has to say so, to be taken and
/// renewed by one statement.
fn tidy(rows: &mut [Row], read_context: &ReadContext) {
    let is_alone = rows
        .iter()
        .any(|row| row.slot == 0 && row.held_leases(read_context).is_some());
    for row in rows.iter_mut().filter(|row| row.slot > 0) {
        if is_alone {
            row.holder = None;
        }
        let kept_until = row.changed_at.saturating_add(whole_micros(BROKEN_KEPT));
        row.broken = row.broken.take().filter(|_| kept_until > read_context.unix);
    }
}

/// How long one of several holders can learn that its lock was broken and not stolen; the
/// renewals of most come much sooner.
const BROKEN_KEPT: Duration = Duration::from_secs(60 * 60);

/// Leases in a database outlive every boot.
pub(super) const BOOT: BootId = BootId([0; 16]);

/// The largest number of a database.
const NEVER: u64 = i64::MAX as u64;

/// Unix microseconds by the clock of the database.
pub(crate) fn read_context(now: u64) -> ReadContext {
    ReadContext {
        boot: BOOT,
        shift: Some(0),
        moment: moment(now),
        unix: now,
        floor: 0,
    }
}

pub(super) fn moment(micros: u64) -> Moment {
    Moment::from_nanos(micros.saturating_mul(1000))
}

pub(super) fn micros(moment: Moment) -> u64 {
    match moment {
        Moment::NEVER => NEVER,
        moment => moment.as_nanos() / 1000,
    }
}

/// At least one, since a lease of none would not be one, and no more than can be added to a time.
pub(super) fn whole_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(LONGEST)
        .clamp(1, LONGEST)
}

const LONGEST: u64 = NEVER / 4;

fn number(value: &Value) -> Option<u64> {
    value.int().and_then(|number| u64::try_from(number).ok())
}

fn text(value: &Value) -> Option<String> {
    String::from_utf8(value.bytes()?.to_vec()).ok()
}

fn lease_id(value: &Value) -> Option<LeaseId> {
    Some(LeaseId::from_bytes(value.bytes()?.try_into().ok()?))
}
