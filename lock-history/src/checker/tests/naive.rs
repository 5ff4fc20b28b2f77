//! The rules once more, each by comparing everything with everything.

use std::collections::BTreeMap;

use super::Violation;
use crate::event::{Access, HistoryEvent, What};

/// A kind of violation with the acquisition that is to blame.
pub(super) type Finding = (&'static str, u64);

pub(super) fn kind_and_culprit(violation: &Violation) -> Finding {
    match *violation {
        Violation::ForeignRelease { by } => ("foreign release", by),
        Violation::HeldAfterLoss { holder } => ("held after loss", holder),
        Violation::LateSignal { holder, .. } => ("late signal", holder),
        Violation::LostWithoutCause { holder } => ("without cause", holder),
        Violation::Overlap { second, .. } => ("overlap", second),
        Violation::Starved { waiter } => ("starved", waiter),
        Violation::TokenReused { later, .. } | Violation::TokenWentBack { later, .. } => {
            ("token", later)
        }
        Violation::LeftBehind { .. }
        | Violation::RefusedFreshToken { .. }
        | Violation::RegisterWentBack { .. } => ("other", 0),
    }
}

/// One acquisition, by its events in the order in which the random history tells them.
#[derive(Clone, Debug)]
struct Life {
    id: u64,
    access: Access,
    asked: u64,
    answered: u64,
    granted: bool,
    token: u64,
    until: u64,
    /// Time of the last event after the grant, and what it was.
    last: Option<(u64, What)>,
    released: Option<(u64, bool)>,
    rose: bool,
}

pub(super) fn judge(events: &[HistoryEvent], delay: u64, max_idle: u64) -> Vec<Finding> {
    let broken: Vec<u64> = events
        .iter()
        .filter(|event| matches!(event.what, What::Interfered { .. }))
        .map(|event| event.at)
        .collect();
    let lives = lives(events);
    let mut found = Vec::new();
    for life in &lives {
        let others = || {
            lives
                .iter()
                .filter(|other| other.id != life.id && other.granted)
        };
        if life.granted {
            judge_holder(life, &broken, delay, &mut found);
            let lasts = life.answered < life.end(&broken);
            let before = |other: &&Life| (other.answered, other.id) < (life.answered, life.id);
            let inside = others()
                .filter(before)
                .filter(|other| other.end(&broken) > life.answered);
            let inside: Vec<_> = inside.collect();
            if lasts && clash(life, &inside) {
                found.push(("overlap", life.id));
            }
            let exclusive = |other: &Life| {
                Access::Exclusive == other.access || Access::Exclusive == life.access
            };
            let after = others().filter(|other| {
                before(other) && exclusive(other) && lasts || other.answered < life.asked
            });
            if after.into_iter().any(|other| other.token >= life.token) {
                found.push(("token", life.id));
            }
            let foreign = others().any(|other| {
                let since = life.answered < other.answered && other.answered < other.until;
                let released =
                    matches!(life.last, Some((at, What::Releasing { .. })) if other.answered <= at);
                since && released && exclusive(other)
            });
            if foreign && life.released.is_some_and(|(_, clean)| clean) {
                found.push(("foreign release", life.id));
            }
        }
        if starved(life, &lives, &broken, max_idle) {
            found.push(("starved", life.id));
        }
    }
    found
}

fn judge_holder(life: &Life, broken: &[u64], delay: u64, found: &mut Vec<Finding>) {
    let excused = |at: u64| {
        broken
            .iter()
            .any(|broken| life.answered <= *broken && *broken <= at)
    };
    if life.rose {
        found.push(("held after loss", life.id));
    }
    if let Some((at, What::Lost { reason })) = &life.last {
        if *at > life.until + delay {
            found.push(("late signal", life.id));
        }
        if reason == "stolen" && !excused(*at) {
            found.push(("without cause", life.id));
        }
    }
    let held = matches!(life.last, Some((_, What::Releasing { held: true })));
    if life
        .released
        .is_some_and(|(at, clean)| !clean && held && at < life.until && !excused(at))
    {
        found.push(("without cause", life.id));
    }
}

fn clash(life: &Life, inside: &[&Life]) -> bool {
    let permits = inside
        .iter()
        .filter(|other| matches!(other.access, Access::Permit(_)))
        .count();
    match life.access {
        Access::Exclusive => !inside.is_empty(),
        Access::Shared => inside.iter().any(|other| other.access != Access::Shared),
        Access::Permit(limit) => permits < inside.len() || permits >= limit.get() as usize,
    }
}

/// Whether there is a moment from which on the lock was free and undisturbed for longer than
/// `max_idle`, up to an event that ended it, all the while `life` waited.
fn starved(life: &Life, lives: &[Life], broken: &[u64], max_idle: u64) -> bool {
    let last = lives.iter().map(|life| life.answered).max().unwrap_or(0);
    (life.asked..life.answered).any(|begin| {
        let end = begin + max_idle + 1;
        let held = |moment: u64| {
            lives.iter().any(|other| {
                other.granted && other.answered <= moment && moment < other.end(broken)
            })
        };
        // Begins and ends of what is held for no time at all disturb as well.
        let touched = |moment: u64| {
            broken.contains(&moment)
                || lives
                    .iter()
                    .any(|other| other.granted && other.answered == moment)
        };
        end <= life.answered
            && end <= last
            && (begin..end).all(|moment| !held(moment))
            && (begin + 1..end).all(|moment| !touched(moment))
    })
}

impl Life {
    fn end(&self, broken: &[u64]) -> u64 {
        let mut end = self.until;
        if let Some((at, What::Releasing { held: true } | What::Lost { .. })) = self.last {
            end = end.min(at);
        }
        for at in broken.iter().filter(|at| **at >= self.answered) {
            end = end.min(*at);
        }
        end.max(self.answered)
    }
}

fn lives(events: &[HistoryEvent]) -> Vec<Life> {
    let mut lives: BTreeMap<u64, Life> = BTreeMap::new();
    for event in events {
        match (&event.what, lives.get_mut(&event.attempt)) {
            (What::Requested { access, .. }, _) => {
                let life = Life {
                    id: event.attempt,
                    access: *access,
                    asked: event.at,
                    answered: u64::MAX,
                    granted: false,
                    token: 0,
                    until: 0,
                    last: None,
                    released: None,
                    rose: false,
                };
                lives.insert(event.attempt, life);
            }
            (What::Granted { token, until }, Some(life)) => {
                (life.answered, life.granted) = (event.at, true);
                (life.token, life.until) = (token.unwrap(), until.unwrap());
            }
            (What::Refused { .. }, Some(life)) => life.answered = event.at,
            (What::Released { clean }, Some(life)) => {
                life.released = clean.map(|clean| (event.at, clean));
            }
            (what, Some(life)) => {
                if let What::Held { until } = what {
                    life.rose = event.at > life.until;
                    life.until = life.until.max(until.unwrap());
                }
                life.last = Some((event.at, what.clone()));
            }
            _ => {}
        }
    }
    lives.into_values().collect()
}
