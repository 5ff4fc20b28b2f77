//! What a run proves: the history checker's verdict, less what docs/guarantees.md allows after the
//! faults that were injected.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_testkit::history::{Checker, Event, Summary, Violation, What};
use polylock_core::LockKey;

use crate::backend::Backend;
use crate::candidate::ELECTION;
use crate::exceptions::{self, Exception};

/// A fault that was injected. Times are those of the events.
#[derive(Clone, Debug)]
pub(crate) struct Struck {
    pub(crate) name: &'static str,
    /// What it met.
    pub(crate) met: String,
    pub(crate) injected: u64,
    /// `None` while it lasts.
    pub(crate) healed: Option<u64>,
}

impl Struck {
    /// Whether it began at most two seconds before this moment, or a second after it.
    pub(crate) fn began_about(&self, moment: u64) -> bool {
        const SECOND: u64 = 1_000_000_000;
        (self.injected.saturating_sub(SECOND)..self.injected + 2 * SECOND).contains(&moment)
    }

    /// Whether it lasts at this moment, or ended so long before at most.
    pub(crate) fn shows_at(&self, moment: u64, aftermath: Duration) -> bool {
        let over = self
            .healed
            .map_or(u64::MAX, |healed| healed + nanos(aftermath));
        self.injected <= moment && moment < over
    }
}

/// What a run proves.
#[derive(Debug, Default)]
pub(crate) struct Judgment {
    pub(crate) summary: Summary,
    /// How often two held a lock after a fault that may do that, by the row that says so.
    pub(crate) explained: BTreeMap<&'static str, usize>,
    /// Violations with what happened, the shortest first.
    pub(crate) violations: Vec<Found>,
    /// The longest time from the end of a fault to the next sign of a holder.
    pub(crate) recovery: Duration,
    /// Terms of leaders.
    pub(crate) terms: usize,
    /// The longest time without a leader and without a fault.
    pub(crate) leaderless: Duration,
}

/// A violation and the events that show it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) key: String,
    pub(crate) what: Violation,
    /// How long two held the lock.
    pub(crate) overlap: Option<Duration>,
    pub(crate) parties: Vec<u64>,
}

impl Found {
    fn starved(key: &str, waiter: u64) -> Self {
        Self {
            key: key.to_owned(),
            what: Violation::Starved { waiter },
            overlap: None,
            parties: vec![waiter],
        }
    }
}

pub(crate) fn judge(
    backend: Backend,
    keys: &[LockKey],
    events: &[Event],
    faults: &[Struck],
) -> Judgment {
    // Whether locks recover is judged by `recovery`: requests wait for too short a time.
    let checker = Checker::new().with_max_idle(NEVER);
    let verdict = checker.check(events);
    let attempts = Attempts::of(events);
    let terms = attempts.terms();
    let (leaderless, waiter) = leaderless(&terms, faults);
    let mut judgment = Judgment {
        summary: verdict.summary,
        recovery: recovery(events, faults),
        terms: terms.len(),
        leaderless,
        ..Judgment::default()
    };
    if leaderless > backend.max_leaderless() {
        judgment.violations.push(Found::starved(ELECTION, waiter));
    }
    for (key, what) in verdict.violations {
        let parties = attempts.parties(&key, &what);
        let overlap = attempts.overlap(&what);
        match excuse(backend, faults, &attempts, &what, overlap) {
            Excuse::Row(exception) => *judgment.explained.entry(exception.row).or_default() += 1,
            Excuse::Fault => {}
            Excuse::None => judgment.violations.push(Found {
                key,
                what,
                overlap,
                parties,
            }),
        }
    }
    let unrecovered = keys
        .iter()
        .filter_map(|key| unrecovered(key, events, faults));
    judgment.violations.extend(unrecovered);
    let length = |found: &Found| {
        let window = attempts.window(&found.parties);
        window.map_or(u64::MAX, |(from, until)| until - from)
    };
    judgment.violations.sort_by_key(length);
    judgment
}

enum Excuse {
    /// A lock may be lost while a fault lasts.
    Fault,
    None,
    Row(&'static Exception),
}

fn excuse(
    backend: Backend,
    faults: &[Struck],
    attempts: &Attempts<'_>,
    what: &Violation,
    overlap: Option<Duration>,
) -> Excuse {
    let granted = |attempt: &u64| attempts.granted(*attempt).unwrap_or_default();
    let (first, begins) = match what {
        Violation::LostWithoutCause { holder } => {
            let lost = attempts.last(*holder);
            return match faults.iter().any(|fault| fault.shows_at(lost, AFTERMATH)) {
                true => Excuse::Fault,
                false => Excuse::None,
            };
        }
        Violation::Overlap { first, second } => (granted(first), granted(second)),
        Violation::ForeignRelease { by } => (granted(by), attempts.last(*by)),
        _ => return Excuse::None,
    };
    let overlap = overlap.unwrap_or_default();
    let row = exceptions::find(backend, faults, first, begins, overlap);
    row.map_or(Excuse::None, Excuse::Row)
}

/// The longest time from the end of all faults until each lock has a holder, where no other fault
/// came in between.
fn recovery(events: &[Event], faults: &[Struck]) -> Duration {
    let mut signs: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for event in events {
        if is_sign(event) {
            signs.entry(&event.key).or_default().push(event.at);
        }
    }
    signs.values_mut().for_each(|signs| signs.sort_unstable());
    let mut longest = 0;
    for healed in faults.iter().filter_map(|fault| fault.healed) {
        let disturbs = |fault: &&Struck| fault.healed.is_none_or(|other| other > healed);
        let next = faults
            .iter()
            .filter(disturbs)
            .map(|fault| fault.injected)
            .min();
        for signs in signs.values() {
            let first = signs.get(signs.partition_point(|at| *at < healed)).copied();
            let first =
                first.unwrap_or_else(|| signs.last().copied().unwrap_or(healed).max(healed));
            if next.is_none_or(|next| first < next) {
                longest = longest.max(first - healed);
            }
        }
    }
    Duration::from_nanos(longest)
}

/// The longest time between two terms, less the time in which a fault lasted, and the acquisition that ended
/// it.
fn leaderless(terms: &[(u64, u64, u64)], faults: &[Struck]) -> (Duration, u64) {
    let mut longest = (0, 0);
    let mut free_from = terms.first().map_or(0, |(from, ..)| *from);
    for &(from, until, attempt) in terms {
        let (mut quiet, mut quiet_from) = (0, free_from);
        for fault in faults {
            quiet += fault.injected.min(from).saturating_sub(quiet_from);
            quiet_from = quiet_from.max(fault.healed.unwrap_or(u64::MAX));
        }
        quiet += from.saturating_sub(quiet_from);
        longest = longest.max((quiet, attempt));
        free_from = free_from.max(until);
    }
    (Duration::from_nanos(longest.0), longest.1)
}

/// A lock that nobody has held since the last fault.
fn unrecovered(key: &LockKey, events: &[Event], faults: &[Struck]) -> Option<Found> {
    let healed = faults.iter().filter_map(|fault| fault.healed).max();
    let since = events
        .iter()
        .filter(|event| event.key == key.as_str() && Some(event.at) > healed);
    if since.clone().any(is_sign) {
        return None;
    }
    let waiter = since.map(|event| event.attempt).max().unwrap_or_default();
    Some(Found::starved(key.as_str(), waiter))
}

/// Whether it shows that the lock has a holder.
pub(crate) fn is_sign(event: &Event) -> bool {
    matches!(event.what, What::Granted { .. } | What::Held { .. })
}

/// The events by acquisition.
pub(crate) struct Attempts<'a>(BTreeMap<u64, Vec<&'a Event>>);

impl<'a> Attempts<'a> {
    pub(crate) fn of(events: &'a [Event]) -> Self {
        let mut attempts: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
        for event in events.iter().filter(|event| event.attempt != 0) {
            attempts.entry(event.attempt).or_default().push(event);
        }
        for events in attempts.values_mut() {
            events.sort_by_key(|event| event.seq);
        }
        Self(attempts)
    }

    pub(crate) fn events(&self, attempt: u64) -> &[&'a Event] {
        self.0.get(&attempt).map_or(&[], Vec::as_slice)
    }

    /// The acquisitions that a violation is about.
    fn parties(&self, key: &str, what: &Violation) -> Vec<u64> {
        match *what {
            Violation::ForeignRelease { by } => vec![by],
            Violation::HeldAfterLoss { holder }
            | Violation::LateSignal { holder, .. }
            | Violation::LostWithoutCause { holder } => vec![holder],
            Violation::Overlap { first, second } => vec![first, second],
            Violation::RegisterWentBack { token, largest } => {
                self.with_tokens(key, &[largest, token])
            }
            Violation::RefusedFreshToken { token } => self.with_tokens(key, &[token]),
            Violation::Starved { waiter } => vec![waiter],
            Violation::TokenReused { later, token }
            | Violation::TokenWentBack {
                later,
                largest: token,
                ..
            } => {
                let mut all = self.with_tokens(key, &[token]);
                all.retain(|attempt| *attempt != later);
                all.push(later);
                all
            }
            _ => Vec::new(),
        }
    }

    fn with_tokens(&self, key: &str, tokens: &[u64]) -> Vec<u64> {
        let has = |events: &[&Event], wanted: u64| {
            events.iter().any(|event| {
                let granted =
                    matches!(event.what, What::Granted { token, .. } if token == Some(wanted));
                granted && event.key == key
            })
        };
        let with = |wanted: &u64| {
            let found = self.0.iter().find(|(_, events)| has(events, *wanted));
            found.map(|(attempt, _)| *attempt)
        };
        tokens.iter().filter_map(with).collect()
    }

    /// From the first grant to the last sign of life of the last holder's.
    pub(crate) fn window(&self, parties: &[u64]) -> Option<(u64, u64)> {
        let from = parties
            .iter()
            .filter_map(|party| self.granted(*party))
            .min()?;
        let until = parties.iter().filter_map(|party| self.end(*party)).max()?;
        Some((from, until.max(from)))
    }

    fn overlap(&self, what: &Violation) -> Option<Duration> {
        let Violation::Overlap { first, second } = what else {
            return None;
        };
        let end = self.end(*first)?.min(self.end(*second)?);
        Some(Duration::from_nanos(
            end.saturating_sub(self.granted(*second)?),
        ))
    }

    /// From when until when there were leaders, and their acquisitions, in the order of their elections.
    fn terms(&self) -> Vec<(u64, u64, u64)> {
        let is_election =
            |events: &[&Event]| events.first().is_some_and(|event| event.key == ELECTION);
        let attempts = self.0.iter().filter(|(_, events)| is_election(events));
        let term = |(id, _): (&u64, _)| Some((self.granted(*id)?, self.end(*id)?, *id));
        let mut terms: Vec<_> = attempts.filter_map(term).collect();
        terms.sort_unstable();
        terms
    }

    pub(crate) fn granted(&self, attempt: u64) -> Option<u64> {
        let granted = |event: &&&Event| matches!(event.what, What::Granted { .. });
        self.events(attempt)
            .iter()
            .find(granted)
            .map(|event| event.at)
    }

    /// When the last happened that is known of an acquisition.
    fn last(&self, attempt: u64) -> u64 {
        self.events(attempt).last().map_or(0, |event| event.at)
    }

    /// Until when the holder relied on the lock.
    fn end(&self, attempt: u64) -> Option<u64> {
        let (mut deadline, mut end) = (None, u64::MAX);
        for event in self.events(attempt) {
            match event.what {
                What::Granted { until, .. } | What::Held { until } => {
                    deadline = deadline.max(Some(until.unwrap_or(event.at)));
                }
                What::Lost { .. } | What::Releasing { .. } => end = end.min(event.at),
                _ => {}
            }
        }
        deadline.map(|deadline| deadline.min(end))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// For how long after its end a fault may cost a lock.
const AFTERMATH: Duration = Duration::from_secs(10);

const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use lock_testkit::history::Access;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn acquired(attempt: u64, at: u64, token: u64) -> [Event; 2] {
        let (access, exact) = (Access::Exclusive, false);
        let (token, until) = (Some(token), Some((at + 2) * SECOND));
        let event = |what| Event::new(at * SECOND, "key", attempt, what);
        let mut granted = event(What::Granted { token, until });
        granted.seq = 1;
        [event(What::Requested { access, exact }), granted]
    }

    fn struck(name: &'static str, from: u64, until: u64) -> Struck {
        Struck {
            name,
            met: String::new(),
            injected: from * SECOND,
            healed: Some(until * SECOND),
        }
    }

    fn judged(backend: Backend, second: u64, faults: &[Struck]) -> Judgment {
        let events = [acquired(1, 10, 1), acquired(2, second, 2)].concat();
        judge(backend, &[], &events, faults)
    }

    #[test]
    fn two_holders_are_a_violation_unless_a_fault_may_do_that() {
        let violations = |backend, faults: &[Struck]| {
            let judgment = judged(backend, 11, faults);
            (judgment.violations.len(), judgment.explained.len())
        };
        assert_eq!(violations(Backend::Redis, &[]), (1, 0));
        let jump = [struck("server-clock", 10, 12)];
        assert_eq!(violations(Backend::Redis, &jump), (0, 1));
        assert_eq!(violations(Backend::Sqlite, &jump), (1, 0));
        assert_eq!(
            violations(Backend::Redis, &[struck("server-clock", 0, 2)]),
            (1, 0)
        );
        // It takes a node that missed the grant as well.
        assert_eq!(violations(Backend::Quorum, &jump), (1, 0));
        let both = [struck("partition", 8, 10), jump[0].clone()];
        assert_eq!(violations(Backend::Quorum, &both), (0, 1));
    }

    #[test]
    fn one_holder_after_the_other_is_no_violation() {
        let judgment = judged(Backend::Redis, 12, &[]);
        assert!(judgment.violations.is_empty());
        assert_eq!(judgment.summary.grants, 2);
    }

    #[test]
    fn an_election_without_a_leader_for_long_is_a_violation_unless_faults_last() {
        let term = |attempt, at| {
            acquired(attempt, at, attempt).map(|mut event| {
                event.key = ELECTION.to_owned();
                event
            })
        };
        // The first term ends after 2 s.
        let events = [term(1, 10), term(2, 32)].concat();
        let judged = |faults: &[Struck]| {
            let judgment = judge(Backend::Redis, &[], &events, faults);
            assert_eq!(judgment.terms, 2);
            (judgment.leaderless.as_secs(), judgment.violations.len())
        };
        assert_eq!(judged(&[]), (20, 1));
        let faults = [("reset", 5, 13), ("split", 15, 21), ("partition", 17, 28)];
        let faults = faults.map(|(name, from, until)| struck(name, from, until));
        assert_eq!(judged(&faults[..2]), (13, 1));
        assert_eq!(judged(&faults), (6, 0));
    }

    #[test]
    fn a_token_that_goes_back_is_never_excused() {
        let events = [acquired(1, 10, 2), acquired(2, 13, 1)].concat();
        let faults = [
            struck("server-clock", 10, 12),
            struck("server-forget", 10, 12),
        ];
        let judgment = judge(Backend::Redis, &[], &events, &faults);
        assert_eq!(judgment.violations.len(), 1);
        assert_eq!(judgment.violations[0].parties, [1, 2]);
    }

    #[test]
    fn a_lock_without_a_holder_after_the_last_fault_is_a_violation() {
        let keys = [LockKey::new("key").unwrap()];
        let events = acquired(1, 10, 1);
        let recovers = |healed| {
            let judgment = judge(
                Backend::Redis,
                &keys,
                &events,
                &[struck("split", 1, healed)],
            );
            (judgment.violations.len(), judgment.recovery)
        };
        assert_eq!(recovers(7), (0, Duration::from_secs(3)));
        assert_eq!(recovers(11).0, 1);
    }
}
