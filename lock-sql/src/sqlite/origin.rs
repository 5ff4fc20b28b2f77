//! What a row says about the clock that its lease is counted by.

use std::time::Duration;

use polylock_core::AcquireRequest;

use crate::table::{BootId, SlotHolder};

/// What the column `boot_id` has, which is a number of bytes for each field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LeaseOrigin {
    pub(super) boot: BootId,
    pub(super) ttl: Duration,
    pub(super) shift: Option<i64>,
}

/// Versions that only know a boot id refuse the row: they grant nothing that they cannot judge.
pub(super) fn write(holder: &SlotHolder) -> Vec<u8> {
    let ttl = u64::try_from(holder.ttl.as_nanos()).unwrap_or(u64::MAX);
    let mut bytes = holder.boot.0.to_vec();
    bytes.extend(ttl.to_be_bytes());
    bytes.extend(holder.shift.map(i64::to_be_bytes).into_iter().flatten());
    bytes
}

/// `None` if polylock has not written it.
pub(super) fn read(bytes: &[u8]) -> Option<LeaseOrigin> {
    let (boot, rest) = bytes.split_first_chunk()?;
    let boot = BootId(*boot);
    let Some((ttl, rest)) = rest.split_first_chunk() else {
        // Of a version that did not know time namespaces, and stored no ttl. The longest is safe.
        return rest.is_empty().then_some(LeaseOrigin {
            boot,
            ttl: AcquireRequest::MAX_TTL,
            shift: Some(0),
        });
    };
    let shift = match rest {
        [] => None,
        rest => Some(i64::from_be_bytes(rest.try_into().ok()?)),
    };
    Some(LeaseOrigin {
        boot,
        ttl: Duration::from_nanos(u64::from_be_bytes(*ttl)),
        shift,
    })
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
            let LeaseOrigin { boot, ttl, shift } = read(&write(&holder)).unwrap();
            assert_eq!((boot, ttl, shift), (holder.boot, holder.ttl, holder.shift));
        }
    }

    #[test]
    fn a_boot_id_alone_means_the_longest_lease() {
        let origin = read(&[7; 16]).unwrap();
        assert_eq!(origin.boot, BootId([7; 16]));
        assert_eq!(
            (origin.ttl, origin.shift),
            (AcquireRequest::MAX_TTL, Some(0))
        );
        for length in [0, 15, 17, 23, 25, 33] {
            assert_eq!(read(&vec![7; length]), None, "{length}");
        }
    }
}
