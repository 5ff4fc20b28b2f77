//! Acquisitions put together from their events.

use std::collections::BTreeMap;

use crate::event::{Access, HistoryEvent, What};
use crate::hold::Hold;

/// Everything that is known of one acquisition.
#[derive(Clone, Debug)]
pub(super) struct AttemptSpan {
    pub(super) attempt: u64,
    pub(super) access: Access,
    exact: bool,
    pub(super) requested: u64,
    /// When the request was answered or dropped.
    pub(super) resolved: Option<u64>,
    pub(super) tenure: Option<Tenure>,
}

/// What is known of the time after a grant.
#[derive(Clone, Debug)]
pub(super) struct Tenure {
    pub(super) from: u64,
    pub(super) token: Option<u64>,
    /// The latest deadline that was seen; `None` without a time limit.
    pub(super) until: Option<u64>,
    seen_held: u64,
    pub(super) lost: Option<(u64, String)>,
    pub(super) releasing: Option<(u64, bool)>,
    pub(super) released: Option<(u64, Option<bool>)>,
    /// When it was seen to be held although it was lost or its exact deadline had passed.
    pub(super) rose_again: Option<u64>,
    /// The first interference after the grant.
    pub(super) interfered: Option<u64>,
}

/// A write to the fenced register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    at: u64,
    seq: u64,
    pub(super) token: u64,
    pub(super) accepted: bool,
}

/// What happened to one key.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyHistory {
    pub(super) spans: Vec<AttemptSpan>,
    /// Sorted.
    pub(super) interference: Vec<u64>,
    /// In the order in which the register saw them.
    pub(super) writes: Vec<Write>,
    pub(super) left: Option<(u64, u64)>,
}

pub(super) fn by_key(events: &[HistoryEvent]) -> BTreeMap<&str, KeyHistory> {
    let mut sorted: Vec<_> = events.iter().collect();
    // The events of one acquisition come from one recorder, whose numbers order what times may tie.
    sorted.sort_by_key(|event| (event.attempt, event.seq, event.at));
    let mut keys: BTreeMap<&str, KeyHistory> = BTreeMap::new();
    for event in sorted {
        keys.entry(&event.key).or_default().add(event);
    }
    keys.values_mut().for_each(KeyHistory::finish);
    keys
}

impl KeyHistory {
    /// Holders with their acquisitions, in no order.
    pub(super) fn tenures(&self) -> impl Iterator<Item = (&AttemptSpan, &Tenure)> {
        self.spans
            .iter()
            .filter_map(|span| span.tenure.as_ref().map(|tenure| (span, tenure)))
    }

    /// The same as [`Hold`]s, in the order of their begins.
    pub(super) fn holds(&self) -> Vec<Hold> {
        let mut holds: Vec<_> = self
            .tenures()
            .map(|(span, tenure)| {
                Hold::new(span.attempt, tenure.from, span.valid_until(tenure))
                    .with_access(span.access)
                    .with_requested(span.requested)
                    .with_token(tenure.token)
            })
            .collect();
        holds.sort_unstable_by_key(|hold| (hold.from, hold.holder));
        holds
    }

    fn add(&mut self, event: &HistoryEvent) {
        match &event.what {
            What::Interfered { .. } => self.interference.push(event.at),
            What::Left { holders, waiters } => self.left = Some((*holders, *waiters)),
            What::Wrote { token, accepted } => self.writes.push(Write {
                at: event.at,
                seq: event.seq,
                token: *token,
                accepted: *accepted,
            }),
            What::Requested { access, exact } => self.spans.push(AttemptSpan {
                attempt: event.attempt,
                access: *access,
                exact: *exact,
                requested: event.at,
                resolved: None,
                tenure: None,
            }),
            what => {
                // Sorted by acquisition, the last span is the one that the event belongs to.
                let span = self
                    .spans
                    .last_mut()
                    .filter(|span| span.attempt == event.attempt);
                if let Some(span) = span {
                    span.add(event.at, what);
                }
            }
        }
    }

    fn finish(&mut self) {
        self.interference.sort_unstable();
        self.writes.sort_by_key(|write| (write.at, write.seq));
        for tenure in self
            .spans
            .iter_mut()
            .filter_map(|span| span.tenure.as_mut())
        {
            let next = self.interference.partition_point(|at| *at < tenure.from);
            tenure.interfered = self.interference.get(next).copied();
        }
    }
}

impl AttemptSpan {
    fn add(&mut self, at: u64, what: &What) {
        match what {
            What::Cancelled | What::Refused { .. } => self.resolved = Some(at),
            What::Granted { token, until } => {
                self.resolved = Some(at);
                self.tenure = Some(Tenure::new(at, *token, *until));
            }
            what => {
                let exact = self.exact;
                if let Some(tenure) = &mut self.tenure {
                    tenure.add(at, what, exact);
                }
            }
        }
    }

    /// Until when the holder relied on the lock, as far as events prove it: never too late.
    pub(super) fn valid_until(&self, tenure: &Tenure) -> u64 {
        let mut end = match (tenure.releasing, tenure.until) {
            (Some((at, true)), Some(until)) if self.exact => at.min(until),
            (Some((at, true)), _) => at,
            (_, Some(until)) => until,
            (_, None) => tenure.seen_held,
        };
        if let Some((at, _)) = &tenure.lost {
            end = end.min(*at);
        }
        // Breaking a lock tolerates a holder that does not know yet.
        tenure
            .interfered
            .map_or(end, |at| end.min(at))
            .max(tenure.from)
    }

    /// The deadline after which the lock had to be lost, if events tell it exactly.
    pub(super) fn exact_deadline(&self) -> Option<u64> {
        let until = self.tenure.as_ref()?.until?;
        self.exact.then_some(until)
    }
}

impl Tenure {
    fn new(from: u64, token: Option<u64>, until: Option<u64>) -> Self {
        Self {
            from,
            token,
            until,
            seen_held: from,
            lost: None,
            releasing: None,
            released: None,
            rose_again: None,
            interfered: None,
        }
    }

    fn add(&mut self, at: u64, what: &What, exact: bool) {
        match what {
            What::Held { until } => {
                let overdue = exact && self.until.is_some_and(|until| at > until);
                if overdue || self.lost.is_some() {
                    self.rose_again.get_or_insert(at);
                }
                self.seen_held = at;
                self.until = self.until.max(*until);
            }
            What::Lost { reason } if self.lost.is_none() => self.lost = Some((at, reason.clone())),
            What::Releasing { held } => self.releasing = Some((at, *held)),
            What::Released { clean } => self.released = Some((at, *clean)),
            _ => {}
        }
    }
}
