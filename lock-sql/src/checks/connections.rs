use lock_core::Finding;

use crate::config::{SqlConfig, SqlMode};

/// How many connections a server gives to this user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Room {
    pub(super) most: i64,
    pub(super) taken: i64,
}

/// How many connections locks need at once, this process alone.
///
/// Locks of sessions have one each, up to the number that is configured, and two more for what is no
/// part of them. Leases come by with one for statements, two for renewals and one that listens.
pub(super) fn needed(config: &SqlConfig) -> i64 {
    match config.mode {
        SqlMode::Lease => 4,
        SqlMode::Advisory | SqlMode::Row => {
            let most = i64::try_from(config.connections).unwrap_or(i64::MAX);
            most.saturating_add(2)
        }
    }
}

/// Says whether there are enough for a process; `rooms` are all limits that apply.
pub(super) fn connections(rooms: &[Room], needed: i64, is_pooled: bool) -> Finding {
    if is_pooled {
        let what = "a pooler is in the path, and does not say how many connections it has";
        return Finding::unknown("connections", what);
    }
    let left = |room: &&Room| room.most - room.taken;
    let Some(room) = rooms.iter().min_by_key(left) else {
        return Finding::unknown("connections", "the server does not tell this user");
    };
    let free = left(&room).max(0);
    let what = format!("{free} of {} connections are free", room.most);
    if free >= needed {
        return Finding::good("connections", what);
    }
    Finding::warning(
        "connections",
        format!("{what}, and locks of this process may need {needed}"),
        "a lock that finds no connection is not taken in time",
        "allow more, write a smaller number of connections, or use mode=lease, which needs four",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_room_counts() {
        let rooms = [(100, 10), (20, 8)].map(|(most, taken)| Room { most, taken });
        let found = connections(&rooms, 12, false);
        assert_eq!(
            found,
            Finding::good("connections", "12 of 20 connections are free")
        );
        let found = connections(&rooms, 13, false);
        assert!(
            found.is_fault() && found.what.ends_with("may need 13"),
            "{found}"
        );
        assert!(!connections(&rooms, 13, true).is_fault());
        assert!(!connections(&[], 13, false).is_fault());
        let over = Room { most: 5, taken: 7 };
        assert!(connections(&[over], 1, false).what.starts_with("0 of 5"));
    }
}
