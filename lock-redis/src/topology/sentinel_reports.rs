//! The reports of the Sentinels about the master, and their implications.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::Moment;

/// The last answer of each Sentinel.
#[derive(Debug)]
pub(super) struct Reports {
    /// How many Sentinels the configuration names.
    configured: usize,
    /// By the identity that the Sentinel reports, whatever its address.
    by_sentinel: HashMap<Arc<str>, SentinelReport>,
}

/// What one Sentinel said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct SentinelReport {
    /// When the query was sent.
    pub(super) asked: Moment,
    /// The address of the master.
    pub(super) master: Arc<str>,
    pub(super) state: MasterState,
    /// How many Sentinels it knows, itself included; 0 if it does not say.
    pub(super) sentinels: usize,
}

/// The state of a master, as a Sentinel that names it sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MasterState {
    /// It is down, or is being replaced.
    Doubted,
    /// Unknown: the Sentinel denies `SENTINEL MASTER` to this user.
    Hidden,
    Up,
}

impl Reports {
    pub(super) fn new(configured: usize) -> Self {
        Self {
            configured,
            by_sentinel: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, sentinel: Arc<str>, report: SentinelReport) {
        // Those that were replaced must not count forever.
        self.by_sentinel
            .retain(|_, old| report.asked.since(old.asked) < MEMORY);
        // If a Sentinel is queried at two addresses, one reply can overtake the other.
        let last = self.by_sentinel.get(&sentinel);
        if last.is_none_or(|last| last.asked <= report.asked) {
            self.by_sentinel.insert(sentinel, report);
        }
    }

    /// The moment since which no majority can have named another master: a majority vouches for this one
    /// in replies to queries sent then or later.
    ///
    /// Two majorities share a Sentinel, and no Sentinel returns to a former master. So no client that
    /// also queries a majority uses another master before this moment.
    pub(super) fn confirmed(&self, master: &str) -> Option<Moment> {
        let vouching = self.naming(master, MasterState::Up);
        let mut asked: Vec<Moment> = vouching.map(|report| report.asked).collect();
        asked.sort_unstable_by(|a, b| b.cmp(a));
        asked.get(self.sentinels() / 2).copied()
    }

    /// How many Sentinels name a master in this state, in replies to queries sent at `since` or later.
    pub(super) fn count(&self, master: &str, state: MasterState, since: Moment) -> usize {
        let naming = self.naming(master, state);
        naming.filter(|report| report.asked >= since).count()
    }

    /// The number of Sentinels: the largest number that any Sentinel knows, which their own majority is
    /// counted by, and at least the number that the configuration names or that replied.
    pub(super) fn sentinels(&self) -> usize {
        let known = self.by_sentinel.values().map(|report| report.sentinels);
        let known = known.max().unwrap_or(0);
        known.max(self.configured).max(self.by_sentinel.len())
    }

    fn naming<'a>(
        &'a self,
        master: &'a str,
        state: MasterState,
    ) -> impl Iterator<Item = &'a SentinelReport> {
        let all = self.by_sentinel.values();
        all.filter(move |report| report.state == state && *report.master == *master)
    }
}

/// How long a reply counts for the number of Sentinels.
const MEMORY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn master(port: u16) -> Arc<str> {
        format!("a:{port}").into()
    }

    fn report(asked: u64, port: u16) -> SentinelReport {
        SentinelReport {
            asked: at(asked),
            master: master(port),
            state: MasterState::Up,
            sentinels: 0,
        }
    }

    fn reports(configured: usize, said: &[SentinelReport]) -> Reports {
        let mut reports = Reports::new(configured);
        for (n, report) in said.iter().enumerate() {
            reports.add(n.to_string().into(), report.clone());
        }
        reports
    }

    #[test]
    fn a_majority_confirms_since_its_oldest_question() {
        for (configured, said, confirmed) in [
            (1, vec![], None),
            (1, vec![(5, 1)], Some(5)),
            (2, vec![(5, 1)], None),
            (2, vec![(5, 1), (6, 1)], Some(5)),
            (3, vec![(9, 1)], None),
            (3, vec![(9, 1), (7, 2)], None),
            (3, vec![(9, 1), (7, 1)], Some(7)),
            (3, vec![(9, 1), (7, 1), (8, 1)], Some(8)),
            (3, vec![(9, 1), (7, 2), (8, 1)], Some(8)),
            (3, vec![(9, 1), (7, 2), (8, 2)], None),
            (4, vec![(9, 1), (8, 1)], None),
            (4, vec![(9, 1), (8, 1), (7, 1)], Some(7)),
            (5, vec![(9, 1), (8, 1), (7, 1)], Some(7)),
        ] {
            let list: Vec<_> = said
                .iter()
                .map(|(asked, port)| report(*asked, *port))
                .collect();
            let reports = reports(configured, &list);
            let expected = confirmed.map(at);
            assert_eq!(
                reports.confirmed(&master(1)),
                expected,
                "{configured} {said:?}"
            );
        }
    }

    #[test]
    fn the_majority_is_that_of_all_that_any_of_them_knows() {
        let mut three = [report(9, 1), report(9, 1), report(9, 1)];
        assert!(reports(1, &three[..1]).confirmed(&master(1)).is_some());
        three[0].sentinels = 3;
        // The configuration names one of three.
        assert_eq!(reports(1, &three[..1]).confirmed(&master(1)), None);
        assert!(reports(1, &three[..2]).confirmed(&master(1)).is_some());
        three[1].sentinels = 5;
        assert_eq!(reports(3, &three[..2]).confirmed(&master(1)), None);
        assert!(reports(3, &three).confirmed(&master(1)).is_some());
    }

    #[test]
    fn one_that_is_asked_at_two_addresses_counts_once() {
        let mut reports = Reports::new(3);
        reports.add("same".into(), report(8, 1));
        reports.add("same".into(), report(9, 1));
        assert_eq!(reports.confirmed(&master(1)), None);
        assert_eq!(reports.count(&master(1), MasterState::Up, at(0)), 1);
    }

    #[test]
    fn an_answer_that_is_overtaken_replaces_no_later_one() {
        let mut reports = Reports::new(1);
        reports.add("same".into(), report(9, 1));
        reports.add("same".into(), report(8, 2));
        assert_eq!(
            reports.confirmed(&master(1)),
            Some(at(9)),
            "the later question was about another master"
        );
        assert_eq!(reports.confirmed(&master(2)), None);
        reports.add("same".into(), report(10, 2));
        assert_eq!(reports.confirmed(&master(2)), Some(at(10)));
    }

    #[test]
    fn one_that_is_gone_does_not_count_for_ever() {
        let mut reports = Reports::new(1);
        for n in 0..9 {
            reports.add(n.to_string().into(), report(1, 1));
        }
        assert_eq!(reports.sentinels(), 9);
        reports.add("new".into(), report(100, 1));
        assert_eq!(reports.sentinels(), 1);
        assert_eq!(reports.confirmed(&master(1)), Some(at(100)));
    }

    #[test]
    fn a_sentinel_that_doubts_or_hides_the_master_does_not_confirm_it() {
        for state in [MasterState::Doubted, MasterState::Hidden] {
            let mut other = report(9, 1);
            other.state = state;
            let reports = reports(3, &[report(9, 1), other, report(9, 2)]);
            assert_eq!(reports.confirmed(&master(1)), None, "{state:?}");
            for counted in [MasterState::Up, state] {
                assert_eq!(reports.count(&master(1), counted, at(0)), 1, "{state:?}");
                assert_eq!(reports.count(&master(1), counted, at(10)), 0, "{state:?}");
            }
        }
    }
}
