//! How rows of the table are written and read.

use std::time::Duration;

use polylock_core::admin::Record;
use polylock_core::engine::{LeaseId, Moment};
use polylock_core::{AcquireRequest, FencingToken};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row as _, Sqlite};

use crate::table::{BootId, Broken, Claimed, LockRow, RECORD, SlotHolder};

/// A statement, and the values that it has so far.
pub(crate) type BoundQuery<'q> = Query<'q, Sqlite, SqliteArguments>;

/// A key, and one of its rows.
pub(crate) type StoredRow = (Vec<u8>, LockRow);

/// Adds the values of one row, in the order of its columns.
pub(crate) fn write<'q>(statement: BoundQuery<'q>, key: &[u8], row: &LockRow) -> BoundQuery<'q> {
    let holder = row.holder.as_ref();
    let (broken, record) = (row.broken.as_ref(), row.record.as_ref());
    let token = holder.map(|holder| holder.token);
    let token = token.or_else(|| record.map(|record| record.token.value()));
    let broken_id = broken.map(|broken| broken.id.as_bytes().to_vec());
    // The time of a holder, or of a waiter.
    let lease = holder.map(|holder| (write_clock(holder), holder.expires));
    let claim = || {
        let claimed = row.claimed?;
        Some((claimed.boot.0.to_vec(), claimed.until))
    };
    let lease = lease.or_else(claim);
    let until = lease.as_ref().map_or(0, |(_, until)| until.as_nanos());
    statement
        .bind(key.to_vec())
        .bind(i64::from(row.slot))
        .bind(integer(row.last_token))
        .bind(holder.map(|holder| holder.id.as_bytes().to_vec()))
        .bind(integer(token.unwrap_or(0)))
        .bind(holder.map_or(0, |holder| i64::from(holder.permits)))
        .bind(lease.map(|(clock, _)| clock))
        .bind(integer(until))
        .bind(holder.map_or_else(String::new, |holder| holder.label.clone()))
        .bind(integer(holder.map_or(0, |holder| holder.since)))
        .bind(integer(row.changed_at))
        .bind(broken_id.or_else(|| record.map(|record| record.bytes.clone())))
        .bind(broken.map(|broken| broken.reason.clone()))
}

/// What the column `boot_id` says of the clock that a lease is counted by: the boot, the ttl, and the shift
/// if that is known. Each field has its number of bytes.
///
/// Versions that only know a boot id refuse the row: they grant nothing that they cannot judge.
fn write_clock(holder: &SlotHolder) -> Vec<u8> {
    let ttl = u64::try_from(holder.ttl.as_nanos()).unwrap_or(u64::MAX);
    let mut bytes = holder.boot.0.to_vec();
    bytes.extend(ttl.to_be_bytes());
    bytes.extend(holder.shift.map(i64::to_be_bytes).into_iter().flatten());
    bytes
}

/// The same fields; `None` if polylock has not written them.
fn read_clock(bytes: &[u8]) -> Option<(BootId, Duration, Option<i64>)> {
    let (boot, rest) = bytes.split_first_chunk()?;
    let boot = BootId(*boot);
    let Some((ttl, rest)) = rest.split_first_chunk() else {
        // Of a version that did not know time namespaces, and stored no ttl. The longest is safe.
        return rest
            .is_empty()
            .then_some((boot, AcquireRequest::MAX_TTL, Some(0)));
    };
    let shift = match rest {
        [] => None,
        rest => Some(i64::from_be_bytes(rest.try_into().ok()?)),
    };
    let ttl = Duration::from_nanos(u64::from_be_bytes(*ttl));
    Some((boot, ttl, shift))
}

/// Larger numbers than SQLite has mean "never" and "no more" alike.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The key and the row; `None` if polylock has not written it.
pub(crate) fn read(row: &SqliteRow) -> Option<StoredRow> {
    let number = |column: &str| u64::try_from(row.try_get::<i64, _>(column).ok()?).ok();
    let bytes = |column: &str| row.try_get::<Option<Vec<u8>>, _>(column).ok();
    let slot = u32::try_from(number("slot")?).ok()?;
    if slot == RECORD {
        let token = FencingToken::new(number("token")?);
        let mut read = LockRow::new(slot);
        read.record = Some(Record::new(token, bytes("broken_id")??));
        read.changed_at = number("changed_at")?;
        return Some((row.try_get("key").ok()?, read));
    }
    let holder = match bytes("id")? {
        None => None,
        Some(id) => {
            let (boot, ttl, shift) = read_clock(&bytes("boot_id")??)?;
            Some(SlotHolder {
                id: LeaseId::from_bytes(id.try_into().ok()?),
                token: number("token")?,
                permits: u32::try_from(number("permits")?).ok()?,
                boot,
                shift,
                expires: Moment::from_nanos(number("expires_boot")?),
                end: None,
                ttl,
                label: row.try_get("label").ok()?,
                since: number("acquired_at")?,
            })
        }
    };
    let claimed = match (&holder, bytes("boot_id")?) {
        (None, Some(boot)) => Some(Claimed {
            boot: BootId(boot.try_into().ok()?),
            until: Moment::from_nanos(number("expires_boot")?),
        }),
        _ => None,
    };
    let broken = match bytes("broken_id")? {
        None => None,
        Some(id) => Some(Broken {
            id: LeaseId::from_bytes(id.try_into().ok()?),
            reason: row.try_get("broken_reason").ok()?,
        }),
    };
    let read = LockRow {
        slot,
        last_token: number("last_token")?,
        holder,
        claimed,
        broken,
        record: None,
        changed_at: number("changed_at")?,
    };
    Some((row.try_get("key").ok()?, read))
}

/// In place of a row that polylock has not written: no purge deletes it.
pub(crate) fn in_use(row: &SqliteRow) -> StoredRow {
    let slot = row.try_get::<i64, _>("slot").ok();
    let slot = slot.and_then(|slot| u32::try_from(slot).ok());
    let mut in_use = LockRow::new(slot.unwrap_or(RECORD));
    in_use.changed_at = u64::MAX;
    (row.try_get("key").unwrap_or_default(), in_use)
}

/// What the row of the empty key, which is no lock's, says of the table.
#[derive(Clone, Debug)]
pub(crate) struct TableInfo {
    pub(crate) layout: i64,
    /// The largest token of all rows that were purged.
    pub(crate) floor: u64,
    /// The last row that the purge has looked at.
    pub(crate) purged_to: (Vec<u8>, u32),
}

pub(crate) fn is_about_table(row: &SqliteRow) -> bool {
    row.try_get::<&[u8], _>("key").is_ok_and(<[u8]>::is_empty)
}

pub(crate) fn read_table(row: &SqliteRow) -> Option<TableInfo> {
    let number = |column: &str| row.try_get::<i64, _>(column).ok();
    let bytes: Option<Vec<u8>> = row.try_get("id").ok()?;
    Some(TableInfo {
        layout: number("token")?,
        floor: u64::try_from(number("last_token")?).ok()?,
        purged_to: (
            bytes.unwrap_or_default(),
            u32::try_from(number("permits")?).ok()?,
        ),
    })
}

pub(crate) fn write_table<'q>(statement: BoundQuery<'q>, table: &TableInfo) -> BoundQuery<'q> {
    let (key, slot) = &table.purged_to;
    let none = None::<Vec<u8>>;
    statement
        .bind(Vec::<u8>::new())
        .bind(0_i64)
        .bind(integer(table.floor))
        .bind(key.clone())
        .bind(table.layout)
        .bind(i64::from(*slot))
        .bind(none.clone())
        .bind(0_i64)
        .bind(String::new())
        .bind(0_i64)
        .bind(0_i64)
        .bind(none)
        .bind(None::<String>)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::testing::holder;

    #[test]
    fn what_is_written_is_read() {
        for shift in [Some(0), Some(-5), Some(86_400_000_000_000), None] {
            let mut holder = holder(1, 50);
            holder.shift = shift;
            let found = read_clock(&write_clock(&holder)).unwrap();
            assert_eq!(found, (holder.boot, holder.ttl, holder.shift));
        }
    }

    #[test]
    fn a_boot_id_alone_means_the_longest_lease() {
        let longest = (BootId([7; 16]), AcquireRequest::MAX_TTL, Some(0));
        assert_eq!(read_clock(&[7; 16]), Some(longest));
        for length in [0, 15, 17, 23, 25, 33] {
            assert_eq!(read_clock(&vec![7; length]), None, "{length} bytes");
        }
    }
}
