//! What a run proves: the history checker's verdict, less what docs/guarantees.md allows after the
//! faults that were injected.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_testkit::history::{Checker, HistoryEvent, Summary, Violation, What};
use polylock_core::LockKey;

use crate::backend::{BackendKind, LONG_TTL};
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

    /// Whether it can have affected this key: an operator breaks one lock, and perhaps none.
    fn affects(&self, key: &str) -> bool {
        let broken = || self.met.strip_prefix(key);
        self.name != "admin-break" || matches!(broken(), Some(" broken" | " perhaps broken"))
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
    /// How often a lock had two holders after a fault that allows it, by the row of the table.
    pub(crate) explained: BTreeMap<&'static str, usize>,
    /// Violations with what happened, the shortest first.
    pub(crate) violations: Vec<FoundViolation>,
    /// The longest time from the end of a fault to the next sign of a holder.
    pub(crate) recovery: Duration,
    /// Terms of leaders.
    pub(crate) terms: usize,
    /// The longest time without a leader in which no fault lasted.
    pub(crate) leaderless: Duration,
}

/// A violation and the events that show it.
#[derive(Debug)]
pub(crate) struct FoundViolation {
    pub(crate) key: String,
    pub(crate) what: Violation,
    /// How long the lock had two holders.
    pub(crate) overlap: Option<Duration>,
    /// Begin and end of the time without a holder.
    pub(crate) gap: Option<(u64, u64)>,
    pub(crate) parties: Vec<u64>,
}

impl FoundViolation {
    fn starved(key: &str, waiter: u64) -> Self {
        Self {
            key: key.to_owned(),
            what: Violation::Starved { waiter },
            overlap: None,
            gap: None,
            parties: vec![waiter],
        }
    }

    fn leaderless(gap: &Gap) -> Self {
        Self {
            gap: Some((gap.from, gap.until)),
            parties: gap.before.into_iter().chain([gap.waiter]).collect(),
            ..Self::starved(ELECTION, gap.waiter)
        }
    }
}

/// `keys` have to have holders, and the election leaders; none in the run of a mutant, which ends early.
pub(crate) fn judge(
    backend: BackendKind,
    keys: &[LockKey],
    events: &[HistoryEvent],
    faults: &[Struck],
) -> Judgment {
    // Whether locks recover is judged by `recovery`: requests wait for too short a time.
    let checker = Checker::new().with_max_idle(NEVER);
    let verdict = checker.check(events);
    let attempts = Attempts::of(events);
    let terms = attempts.terms();
    let gap = longest_gap(&attempts, &terms, faults);
    let mut judgment = Judgment {
        summary: verdict.summary,
        recovery: recovery(events, faults),
        terms: terms.len(),
        leaderless: Duration::from_nanos(gap.as_ref().map_or(0, |gap| gap.quiet)),
        ..Judgment::default()
    };
    let is_led = judgment.leaderless <= backend.max_leaderless() && terms.len() > 1;
    if !is_led && keys.iter().any(|key| key.as_str() == ELECTION) {
        let found = gap.as_ref().map(FoundViolation::leaderless);
        judgment.violations.extend(found);
    }
    for (key, what) in verdict.violations {
        let parties = attempts.parties(&key, &what);
        let affects = |fault: &&Struck| fault.affects(&key);
        let faults: Vec<_> = faults.iter().filter(affects).cloned().collect();
        let two_holders = attempts.two_holders_of_unknown_order(&what, &parties);
        let two_holders = two_holders.filter(|_| faults.iter().any(|it| it.name == "server-clock"));
        let cause = two_holders.as_ref().unwrap_or(&what);
        let overlap = attempts.overlap(cause);
        let lease = match &*key {
            ELECTION => backend.election_lease(),
            _ => LONG_TTL,
        };
        match excuse(backend, &faults, &attempts, cause, overlap, lease) {
            Excuse::Row(exception) => *judgment.explained.entry(exception.row).or_default() += 1,
            Excuse::Fault => {}
            Excuse::None => judgment.violations.push(FoundViolation {
                key,
                what,
                overlap,
                gap: None,
                parties,
            }),
        }
    }
    let unrecovered = keys
        .iter()
        .filter_map(|key| unrecovered(key, events, &attempts, faults));
    judgment.violations.extend(unrecovered);
    let length = |found: &FoundViolation| {
        let window = found.gap.or_else(|| attempts.window(&found.parties));
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
    backend: BackendKind,
    faults: &[Struck],
    attempts: &Attempts<'_>,
    what: &Violation,
    overlap: Option<Duration>,
    lease: Duration,
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
    let row = exceptions::find(backend, faults, first, begins, overlap, lease);
    row.map_or(Excuse::None, Excuse::Row)
}

/// The longest time from the end of all faults until each lock has a holder, where no other fault
/// came in between.
fn recovery(events: &[HistoryEvent], faults: &[Struck]) -> Duration {
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

/// A time without a leader.
#[derive(Debug)]
struct Gap {
    /// The longest part of it in which no fault lasted.
    quiet: u64,
    from: u64,
    until: u64,
    /// The term before.
    before: Option<u64>,
    /// The acquisition that ended it, or that waits at the end of the run.
    waiter: u64,
}

/// The gap with the longest time without a fault, from the first campaign to the end of the run.
fn longest_gap(
    attempts: &Attempts<'_>,
    terms: &[(u64, u64, u64)],
    faults: &[Struck],
) -> Option<Gap> {
    let (mut free_from, waiter) = attempts.campaigns()?;
    let mut before = None;
    let end = (attempts.newest(), u64::MAX, waiter);
    let gaps = terms.iter().chain([&end]).map(|&(from, until, waiter)| {
        let gap = Gap {
            quiet: longest_quiet(free_from, from, faults),
            from: free_from,
            until: from.max(free_from),
            before,
            waiter,
        };
        if until > free_from {
            (free_from, before) = (until, Some(waiter));
        }
        gap
    });
    gaps.max_by_key(|gap| gap.quiet)
}

/// The longest time between two moments in which no fault lasted.
fn longest_quiet(from: u64, until: u64, faults: &[Struck]) -> u64 {
    let (mut longest, mut quiet_from) = (0, from);
    for fault in faults {
        longest = longest.max(fault.injected.min(until).saturating_sub(quiet_from));
        quiet_from = quiet_from.max(fault.healed.unwrap_or(u64::MAX));
    }
    longest.max(until.saturating_sub(quiet_from))
}

/// A lock that has had no holder since the last fault.
fn unrecovered(
    key: &LockKey,
    events: &[HistoryEvent],
    attempts: &Attempts<'_>,
    faults: &[Struck],
) -> Option<FoundViolation> {
    let healed = faults.iter().filter_map(|fault| fault.healed).max();
    let mut since = events
        .iter()
        .filter(|event| event.key == key.as_str() && Some(event.at) > healed);
    let waiter = || attempts.last_waiter(key.as_str()).unwrap_or_default();
    (!since.any(is_sign)).then(|| FoundViolation::starved(key.as_str(), waiter()))
}

/// Whether it shows that the lock has a holder.
pub(crate) fn is_sign(event: &HistoryEvent) -> bool {
    matches!(event.what, What::Granted { .. } | What::Held { .. })
}

/// The events by acquisition.
pub(crate) struct Attempts<'a>(BTreeMap<u64, Vec<&'a HistoryEvent>>);

impl<'a> Attempts<'a> {
    pub(crate) fn of(events: &'a [HistoryEvent]) -> Self {
        let mut attempts: BTreeMap<u64, Vec<&HistoryEvent>> = BTreeMap::new();
        for event in events.iter().filter(|event| event.attempt != 0) {
            attempts.entry(event.attempt).or_default().push(event);
        }
        for events in attempts.values_mut() {
            events.sort_by_key(|event| event.seq);
        }
        Self(attempts)
    }

    pub(crate) fn events(&self, attempt: u64) -> &[&'a HistoryEvent] {
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
        let has = |events: &[&HistoryEvent], wanted: u64| {
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

    /// The two holders of whom the later one has the smaller token, although the server may have granted it the
    /// lock first, before its clock jumped and the lease was over: it had requested it before the other was granted
    /// it, which still held it, and its reply may have been under way.
    fn two_holders_of_unknown_order(&self, what: &Violation, parties: &[u64]) -> Option<Violation> {
        let (Violation::TokenWentBack { .. }, &[first, second]) = (what, parties) else {
            return None;
        };
        let requested = self.events(second).first()?.at;
        let (one, other) = (self.granted(first)?, self.granted(second)?);
        let is_unknown = requested < one && other < self.end(first)?.min(one + nanos(REPLY));
        is_unknown.then_some(Violation::Overlap { first, second })
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

    /// The terms of all leaders with their acquisitions, in the order of their elections.
    fn terms(&self) -> Vec<(u64, u64, u64)> {
        let term = |(id, _)| Some((self.granted(id)?, self.end(id)?, id));
        let mut terms: Vec<_> = self.of_key(ELECTION).filter_map(term).collect();
        terms.sort_unstable();
        terms
    }

    /// When the first candidate campaigned, and the last one that waits.
    fn campaigns(&self) -> Option<(u64, u64)> {
        let first = self
            .of_key(ELECTION)
            .map(|(_, events)| events[0].at)
            .min()?;
        Some((first, self.last_waiter(ELECTION)?))
    }

    /// The last request for a key that got no answer, or the last one if all did.
    fn last_waiter(&self, key: &str) -> Option<u64> {
        let age = |(_, events): &(u64, &[&HistoryEvent])| (events.len() == 1, events[0].at);
        self.of_key(key).max_by_key(age).map(|(id, _)| id)
    }

    fn of_key(&self, key: &str) -> impl Iterator<Item = (u64, &[&'a HistoryEvent])> {
        let all = self.0.iter().map(|(id, events)| (*id, &**events));
        all.filter(move |(_, events)| events[0].key == key)
    }

    fn newest(&self) -> u64 {
        let events = self.0.values().flatten();
        events.map(|event| event.at).max().unwrap_or_default()
    }

    pub(crate) fn granted(&self, attempt: u64) -> Option<u64> {
        let granted = |event: &&&HistoryEvent| matches!(event.what, What::Granted { .. });
        self.events(attempt)
            .iter()
            .find(granted)
            .map(|event| event.at)
    }

    /// When the last event of an acquisition happened.
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

/// For how long a reply may be under way, on a busy machine.
const REPLY: Duration = Duration::from_millis(500);

/// For how long after its end a fault may cost a lock.
const AFTERMATH: Duration = Duration::from_secs(10);

const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use lock_testkit::history::Access;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn acquired(attempt: u64, at: u64, token: u64) -> [HistoryEvent; 2] {
        let (access, exact) = (Access::Exclusive, false);
        let (token, until) = (Some(token), Some((at + 2) * SECOND));
        let event = |what| HistoryEvent::new(at * SECOND, "key", attempt, what);
        let mut granted = event(What::Granted { token, until });
        granted.seq = 1;
        [event(What::Requested { access, exact }), granted]
    }

    fn of_key(key: &str, mut event: HistoryEvent) -> HistoryEvent {
        event.key = key.to_owned();
        event
    }

    fn struck(name: &'static str, from: u64, until: u64) -> Struck {
        Struck {
            name,
            met: String::new(),
            injected: from * SECOND,
            healed: Some(until * SECOND),
        }
    }

    fn judged(backend: BackendKind, second: u64, faults: &[Struck]) -> Judgment {
        let events = [acquired(1, 10, 1), acquired(2, second, 2)].concat();
        judge(backend, &[], &events, faults)
    }

    #[test]
    fn two_holders_are_a_violation_unless_a_fault_may_do_that() {
        let violations = |backend, faults: &[Struck]| {
            let judgment = judged(backend, 11, faults);
            (judgment.violations.len(), judgment.explained.len())
        };
        assert_eq!(violations(BackendKind::Redis, &[]), (1, 0));
        let jump = [struck("server-clock", 10, 12)];
        assert_eq!(violations(BackendKind::Redis, &jump), (0, 1));
        assert_eq!(violations(BackendKind::Sqlite, &jump), (1, 0));
        let early = [struck("server-clock", 0, 2)];
        assert_eq!(violations(BackendKind::Redis, &early), (1, 0));
        // It takes a node that missed the grant as well.
        assert_eq!(violations(BackendKind::Quorum, &jump), (1, 0));
        let both = [struck("partition", 8, 10), jump[0].clone()];
        assert_eq!(violations(BackendKind::Quorum, &both), (0, 1));
    }

    #[test]
    fn tokens_of_two_holders_whose_order_is_unknown_may_be_in_either_order() {
        let violations = |requested: u64, granted: u64, fault| {
            let mut events = [acquired(1, 10, 2), acquired(2, 10, 1)].concat();
            events[2].at = requested * SECOND / 10;
            events[3].at = granted * SECOND / 10;
            let faults = [struck(fault, 8, 12)];
            let judgment = judge(BackendKind::Redis, &[], &events, &faults);
            judgment.violations.len()
        };
        let jump = "server-clock";
        assert_eq!(violations(90, 102, jump), 0);
        // Two holders are allowed then, and smaller tokens are not.
        assert_eq!(violations(90, 102, "server-forget"), 1);
        assert_eq!(violations(101, 102, jump), 1, "requested later");
        assert_eq!(violations(90, 105, jump), 1, "no reply takes so long");
        assert_eq!(violations(90, 102, "reset"), 2, "no two holders");
    }

    #[test]
    fn one_holder_after_the_other_is_no_violation() {
        let judgment = judged(BackendKind::Redis, 12, &[]);
        assert!(judgment.violations.is_empty());
        assert_eq!(judgment.summary.grants, 2);
    }

    #[test]
    fn an_election_without_a_leader_for_long_is_a_violation_unless_faults_last() {
        let term =
            |attempt, at| acquired(attempt, at, attempt).map(|event| of_key(ELECTION, event));
        // Each term ends after 2 s.
        let terms = [term(1, 10), term(2, 32)].concat();
        let [waits, _] = term(3, 42);
        let judged = |events: &[HistoryEvent], faults: &[Struck]| {
            let keys = [LockKey::new(ELECTION).unwrap()];
            let judgment = judge(BackendKind::Redis, &keys, events, faults);
            let found = judgment.violations.into_iter().find_map(|found| {
                let (from, until) = found.gap?;
                Some((from / SECOND, until / SECOND, found.parties))
            });
            (judgment.leaderless.as_secs(), found)
        };
        assert_eq!(judged(&terms, &[]), (20, Some((12, 32, vec![1, 2]))));
        let faults = [("reset", 5, 13), ("split", 15, 21), ("partition", 17, 28)];
        let faults = faults.map(|(name, from, until)| struck(name, from, until));
        assert_eq!(judged(&terms, &faults[..2]).0, 11);
        assert_eq!(judged(&terms, &faults), (4, None));

        // Before the first term, and after the last one.
        let [early, _] = term(3, 1);
        let both = [&[early], &*terms].concat();
        assert_eq!(judged(&both, &faults[1..]), (9, Some((1, 10, vec![1]))));
        let both = [&*terms, &[waits]].concat();
        assert_eq!(judged(&both, &faults), (8, Some((34, 42, vec![2, 3]))));
        assert_eq!(judged(&terms[..2], &[]).0, 0);
        assert!(judged(&terms[..2], &[]).1.is_some(), "there was one term");
    }

    #[test]
    fn a_broken_lock_explains_two_holders_of_its_own_key() {
        let explained = |met: &str| {
            let mut fault = struck("admin-break", 10, 11);
            fault.met = met.to_owned();
            let judgment = judged(BackendKind::Redis, 11, &[fault]);
            judgment.violations.is_empty()
        };
        assert!(explained("key broken") && explained("key perhaps broken"));
        assert!(!explained("key not broken") && !explained("key-1 broken"));
    }

    #[test]
    fn two_leaders_are_explained_for_one_lease_of_the_election() {
        let violations = |key: &str| {
            let events = [acquired(1, 15, 1), acquired(2, 16, 2)].concat();
            let events: Vec<_> = events.into_iter().map(|event| of_key(key, event)).collect();
            let faults = [struck("server-clock", 10, 12)];
            let judgment = judge(BackendKind::Redis, &[], &events, &faults);
            judgment.violations.len()
        };
        assert_eq!([violations("key"), violations(ELECTION)], [0, 1]);
    }

    #[test]
    fn a_token_that_goes_back_is_never_excused() {
        let events = [acquired(1, 10, 2), acquired(2, 13, 1)].concat();
        let faults = ["server-clock", "server-forget"].map(|name| struck(name, 10, 12));
        let judgment = judge(BackendKind::Redis, &[], &events, &faults);
        assert_eq!(judgment.violations.len(), 1);
        assert_eq!(judgment.violations[0].parties, [1, 2]);
    }

    #[test]
    fn a_lock_without_a_holder_after_the_last_fault_is_a_violation() {
        let keys = [LockKey::new("key").unwrap()];
        let events = acquired(1, 10, 1);
        let recovers = |healed| {
            let faults = [struck("split", 1, healed)];
            let judgment = judge(BackendKind::Redis, &keys, &events, &faults);
            (judgment.violations.len(), judgment.recovery)
        };
        assert_eq!(recovers(7), (0, Duration::from_secs(3)));
        assert_eq!(recovers(11).0, 1);
    }
}
