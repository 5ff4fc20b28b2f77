//! Judging leases by what is seen of them, where the clock of the database is not trusted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::engine::{LeaseId, Moment};

use crate::table::{Holder, Record, Scene};

/// What this process has seen of the leases of others.
///
/// A holder that lives grows its beat within each lease. Whoever sees the same beat for a whole
/// lease and a margin, by its own clock, knows that the lease has ended: the last renewal was
/// asked for before it was first seen. Nothing depends on how often it looks.
#[derive(Debug, Default)]
pub(super) struct Observer(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    sightings: HashMap<LeaseId, Sighting>,
    /// How many there were after some were last forgotten.
    kept: usize,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    beat: u64,
    ttl: Duration,
    /// When this beat was first seen, counted from the reply.
    since: Moment,
    /// When it was last seen.
    last: Moment,
}

impl Observer {
    /// Puts the end that was observed into each holder, and leaves out who has ended; `now` is the
    /// clock of this process after the record was read.
    pub(super) fn judge(&self, record: &mut Record, scene: &Scene, now: Moment) {
        let mut seen = self.lock();
        for row in record.rows_mut() {
            let Some(holder) = &mut row.holder else {
                continue;
            };
            let left = seen
                .sightings
                .entry(holder.id)
                .and_modify(|sighting| sighting.update(holder, now))
                .or_insert_with(|| Sighting::new(holder, now))
                .end()
                .since(now);
            // The margin is nobody's time.
            holder.expires = scene.moment + left.min(holder.ttl);
            if left.is_zero() {
                row.holder = None;
            }
        }
        seen.forget(now);
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// Forgets holders that nobody asks for any more, when they have become twice as many: one look at
    /// all of them is paid for by as many new ones.
    ///
    /// Whoever looks more seldom than each lease and its margin may have to see that holder anew.
    fn forget(&mut self, now: Moment) {
        if self.sightings.len() < (self.kept * 2).max(MANY) {
            return;
        }
        self.sightings
            .retain(|_, sighting| sighting.last + sighting.lease() >= now);
        self.kept = self.sightings.len();
    }
}

const MANY: usize = 1024;

impl Sighting {
    fn new(holder: &Holder, now: Moment) -> Self {
        Self {
            beat: holder.beat,
            ttl: holder.ttl,
            since: now,
            last: now,
        }
    }

    fn update(&mut self, holder: &Holder, now: Moment) {
        // A smaller one as well: a standby that took over may have missed some.
        if holder.beat != self.beat {
            *self = Self::new(holder, now);
        }
        self.last = now;
    }

    fn end(&self) -> Moment {
        self.since + self.lease()
    }

    /// How long a holder is taken to live without a beat.
    fn lease(&self) -> Duration {
        self.ttl + (self.ttl / 10).max(LEAST_MARGIN)
    }
}

/// Clocks of two machines do not run at the same speed.
const LEAST_MARGIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::codec::{BOOT, moment, scene};
    use crate::table::Row;

    const TTL: u64 = 10_000;

    fn millis(millis: u64) -> Moment {
        moment(millis * 1000)
    }

    fn record(beat: u64) -> Record {
        let mut row = Row::new(0);
        row.holder = Some(Holder {
            id: LeaseId::from_bytes([1; 16]),
            token: 1,
            permits: 0,
            boot: BOOT,
            shift: Some(0),
            expires: Moment::NEVER,
            end: None,
            ttl: Duration::from_millis(TTL),
            beat,
            label: String::new(),
            since: 0,
        });
        let mut record = Record::default();
        record.load(row);
        record
    }

    /// The milliseconds that are left, 0 for an end, seen at `now` with any clock of the database.
    fn left(observer: &Observer, beat: u64, now: u64, database: u64) -> u64 {
        let (mut record, scene) = (record(beat), scene(database));
        observer.judge(&mut record, &scene, millis(now));
        let holder = record.rows().find_map(|row| row.holder.as_ref());
        let left = holder.map(|holder| holder.expires.since(scene.moment));
        u64::try_from(left.unwrap_or_default().as_millis()).unwrap()
    }

    #[test]
    fn a_holder_ends_when_its_beat_was_the_same_for_a_lease_and_a_margin() {
        let observer = Observer::default();
        // When, by which clock of the database, the beat, and what is left of a lease of 10 s.
        let steps = [
            (5_000, 9_000_000, 0, 10_000),
            (15_000, 9_000_000, 0, 1_000),
            // The database jumps by a day, and back.
            (15_500, 86_400_000_000, 0, 500),
            (15_600, 1, 1, 10_000),
            (26_599, 2, 1, 1),
            (26_600, 2, 1, 0),
            (26_700, 2, 2, 10_000),
            // A standby took over that has missed two renewals.
            (30_000, 2, 0, 10_000),
        ];
        for (now, database, beat, expected) in steps {
            assert_eq!(left(&observer, beat, now, database), expected, "at {now}");
        }
    }

    #[test]
    fn each_observer_judges_by_what_it_has_seen_itself() {
        let (first, second) = (Observer::default(), Observer::default());
        assert_eq!(left(&first, 3, 0, 1), 10_000);
        assert_eq!(left(&first, 3, 11_000, 1), 0);
        assert_eq!(left(&second, 3, 11_000, 1), 10_000);
    }

    #[test]
    fn holders_that_nobody_has_asked_for_are_forgotten() {
        let observer = Observer::default();
        let see = |n: usize, now: u64| {
            let id = LeaseId::from_bytes(u128::try_from(n).unwrap().to_be_bytes());
            let mut record = record(0);
            record.rows_mut().for_each(|row| {
                if let Some(holder) = &mut row.holder {
                    holder.id = id;
                }
            });
            observer.judge(&mut record, &scene(1), millis(now));
            observer.lock().sightings.len()
        };
        // None is older than a lease when there are many for the first time.
        for n in 0..MANY * 2 - 1 {
            assert_eq!(see(n, 11_000), n + 1);
        }
        assert_eq!(see(0, 22_000), MANY * 2 - 1, "they have not doubled");
        // All but the one that was looked at since.
        assert_eq!(see(MANY * 2, 22_001), 2);
        for n in 0..MANY - 2 {
            assert_eq!(
                see(MANY * 3 + n, 40_000),
                n + 3 - 2 * usize::from(n == MANY - 3)
            );
        }
    }
}
