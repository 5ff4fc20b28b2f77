//! No client touches another holder's lock, and a holder that loses its lock is notified in time.

use crate::event::Access;
use crate::span::{KeyHistory, Span, Tenure};
use crate::violation::Violation;

pub(super) fn check(history: &KeyHistory, signal_delay: u64, found: &mut Vec<Violation>) {
    let order = Order::of(history);
    for (span, tenure) in history.tenures() {
        let holder = span.attempt;
        if tenure.rose_again.is_some() {
            found.push(Violation::HeldAfterLoss { holder });
        }
        if let Some(by) = lateness(span, tenure).filter(|by| *by > signal_delay) {
            found.push(Violation::LateSignal { holder, by });
        }
        if was_robbed(tenure) {
            found.push(Violation::LostWithoutCause { holder });
        }
        if order.released_foreign(span, tenure) {
            found.push(Violation::ForeignRelease { by: holder });
        }
    }
}

/// How much later than the deadline the loss was signaled.
fn lateness(span: &Span, tenure: &Tenure) -> Option<u64> {
    let (at, _) = tenure.lost.as_ref()?;
    at.checked_sub(span.exact_deadline()?)
}

/// Whether the server took the lock from a valid holder although no client had broken it.
fn was_robbed(tenure: &Tenure) -> bool {
    let told = |(at, reason): &(u64, String)| {
        let taken = matches!(reason.as_str(), "broken" | "session_ended" | "stolen");
        taken.then_some(*at)
    };
    let found_out = match (tenure.releasing, tenure.released) {
        (Some((_, true)), Some((at, Some(false)))) => {
            // A lock that expired while the release was in flight was not taken.
            tenure.until.is_none_or(|until| at < until).then_some(at)
        }
        _ => None,
    };
    let known = tenure.lost.as_ref().and_then(told).or(found_out);
    known.is_some_and(|at| tenure.interfered.is_none_or(|interfered| interfered > at))
}

/// When which kind of holder was granted the lock, sorted.
struct Order {
    all: Vec<u64>,
    exclusive: Vec<u64>,
}

impl Order {
    fn of(history: &KeyHistory) -> Self {
        let sorted = |wanted: fn(Access) -> bool| {
            let wanted = history.tenures().filter(|(span, _)| wanted(span.access));
            let mut times: Vec<_> = wanted.map(|(_, tenure)| tenure.from).collect();
            times.sort_unstable();
            times
        };
        Self {
            all: sorted(|_| true),
            exclusive: sorted(|access| access == Access::Exclusive),
        }
    }

    /// Whether the server says that a holder had the lock until its release, although a holder that it
    /// excludes was granted it before.
    fn released_foreign(&self, span: &Span, tenure: &Tenure) -> bool {
        let (Some((releasing, _)), Some((_, Some(true)))) = (tenure.releasing, tenure.released)
        else {
            return false;
        };
        let others = match span.access {
            Access::Exclusive => &self.all,
            Access::Permit(_) | Access::Shared => &self.exclusive,
        };
        let until = |moment: u64| others.partition_point(|at| *at <= moment);
        until(releasing) > until(tenure.from)
    }
}
