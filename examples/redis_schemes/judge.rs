//! From what happened to what that broke.

use std::collections::BTreeMap;

use crate::invariant::Invariant;
use crate::timeline::{Entry, Event, Stay};

#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The first evidence against each invariant that does not hold.
    pub(crate) broken: BTreeMap<Invariant, String>,
    /// Why two that were inside at once did no harm.
    pub(crate) fenced: Option<String>,
}

/// Judges entries that are in their order.
pub(crate) fn judge(entries: &[Entry]) -> Findings {
    let stays = Stay::all(entries);
    let mut findings = Findings::default();
    for entry in entries {
        if let Some((invariant, evidence)) = offence(entry, &stays) {
            findings.broken.entry(invariant).or_insert(evidence);
        }
    }
    let pairs = (1..stays.len()).flat_map(|n| (0..n).map(move |m| (m, n)));
    for (earlier, later) in pairs.map(|(m, n)| (&stays[m], &stays[n])) {
        if earlier.who != later.who && earlier.to > later.from {
            met(earlier, later, entries, &mut findings);
        }
    }
    findings
}

/// What one entry breaks by itself.
fn offence(entry: &Entry, stays: &[Stay]) -> Option<(Invariant, String)> {
    let (who, at) = (entry.who, entry.at.as_millis());
    let successor = || successor(entry, stays);
    match &entry.event {
        Event::IsStuck(why) => Some((Invariant::Liveness, format!("{who} at {at} ms: {why}"))),
        Event::Overwrites(whose) => {
            let evidence = format!("the lock of {whose} bears the value of {who} since {at} ms");
            Some((Invariant::Ownership, evidence))
        }
        Event::Releases { removed: true } => {
            let owner = successor().filter(|owner| owner.to >= entry.at)?.who;
            let evidence = format!("{who} removed the lock of {owner} at {at} ms");
            Some((Invariant::Ownership, evidence))
        }
        Event::Writes { accepted: true, .. } => {
            let Stay {
                who: next, from, ..
            } = successor()?;
            let from = from.as_millis();
            let evidence =
                format!("{who}'s write at {at} ms was accepted, {next} had entered at {from} ms");
            Some((Invariant::Fencing, evidence))
        }
        _ => None,
    }
}

/// Who came in after whoever the entry is of.
fn successor<'a>(entry: &Entry, stays: &'a [Stay]) -> Option<&'a Stay> {
    let begun = |stay: &&Stay| stay.from <= entry.at;
    let own = stays
        .iter()
        .filter(begun)
        .rfind(|stay| stay.who == entry.who)?;
    let later = |stay: &&Stay| stay.from > own.from && stay.who != own.who;
    stays.iter().filter(begun).rfind(later)
}

/// Two were inside at once.
fn met(earlier: &Stay, later: &Stay, entries: &[Entry], findings: &mut Findings) {
    let refused = |entry: &&Entry| {
        matches!(
            entry.event,
            Event::Writes {
                accepted: false,
                ..
            }
        ) && entry.who == earlier.who
            && entry.at >= later.from
    };
    let evidence = format!("inside at once: {earlier}, {later}");
    let harmless = earlier.told && entries.iter().any(|entry| refused(&entry));
    if harmless && !findings.broken.contains_key(&Invariant::Fencing) {
        findings.fenced = Some(format!(
            "{evidence}; {} was told and fenced off",
            earlier.who
        ));
    } else {
        let together = findings.broken.entry(Invariant::MutualExclusion);
        together.or_insert(evidence);
    }
    if !earlier.told {
        let (who, to, next) = (earlier.who, earlier.to.as_millis(), later.who);
        let evidence = format!("{who} worked until {to} ms, nobody told it of {next}");
        let silent = findings.broken.entry(Invariant::LossSignal);
        silent.or_insert(evidence);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::invariant::Invariant::{Fencing, Liveness, LossSignal, MutualExclusion, Ownership};
    use crate::timeline::Who;

    fn broken(events: Vec<(Who, Event)>) -> (Vec<Invariant>, bool) {
        let entries: Vec<_> = (0..).zip(events).map(entry).collect();
        let findings = judge(&entries);
        (
            findings.broken.into_keys().collect(),
            findings.fenced.is_some(),
        )
    }

    fn entry((n, (who, event)): (u64, (Who, Event))) -> Entry {
        let at = Duration::from_millis(n);
        Entry { at, who, event }
    }

    fn enters() -> Event {
        Event::Enters(String::new())
    }

    fn told() -> Event {
        Event::IsTold(String::new())
    }

    fn writes(accepted: bool) -> Event {
        let token = Some(1);
        Event::Writes { token, accepted }
    }

    #[test]
    fn one_after_the_other_breaks_nothing() {
        let removed = true;
        let events = vec![
            ("A", enters()),
            ("A", writes(true)),
            ("A", Event::Leaves),
            ("A", Event::Releases { removed }),
            ("B", enters()),
            ("B", writes(true)),
        ];
        assert_eq!(broken(events), (vec![], false));
    }

    #[test]
    fn two_at_once_without_a_word_break_three() {
        let events = vec![
            ("A", enters()),
            ("B", enters()),
            ("A", writes(true)),
            ("A", Event::Leaves),
        ];
        assert_eq!(
            broken(events),
            (vec![Fencing, LossSignal, MutualExclusion], false)
        );
    }

    #[test]
    fn two_at_once_are_harmless_only_if_the_first_is_told_and_refused() {
        let events = |last| vec![("A", enters()), ("B", enters()), ("A", told()), ("A", last)];
        assert_eq!(broken(events(writes(false))), (vec![], true));
        assert_eq!(broken(events(writes(true))).0, [Fencing, MutualExclusion]);
        assert_eq!(broken(events(Event::Leaves)).0, [MutualExclusion]);
    }

    #[test]
    fn late_write_needs_no_meeting() {
        let events = vec![
            ("A", enters()),
            ("A", told()),
            ("B", enters()),
            ("A", writes(true)),
        ];
        assert_eq!(broken(events), (vec![Fencing], false));
    }

    #[test]
    fn foreign_release_is_one_of_a_lock_that_another_has() {
        let removed = true;
        let events = vec![
            ("A", enters()),
            ("A", Event::Leaves),
            ("B", enters()),
            ("A", Event::Releases { removed }),
        ];
        assert_eq!(broken(events), (vec![Ownership], false));
    }

    #[test]
    fn nobody_inside_and_nobody_let_in_is_no_life() {
        let events = vec![("B", Event::IsStuck(String::new()))];
        assert_eq!(broken(events), (vec![Liveness], false));
    }
}
