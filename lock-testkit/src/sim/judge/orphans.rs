use std::time::Duration;

use lock_core::{ErrorKind, Wait};

use super::{Case, ViolationKind, is_of};
use crate::sim::log::{Answer, Ending, Operation};
use crate::sim::tenure::Tenure;

impl Case<'_> {
    /// A lease that nobody has any more is tried to be given back until the store answers.
    pub(super) fn judge_orphans(&mut self) {
        let tenures = self.tenures;
        for (tenure, _, until) in tenures.iter().filter(|(tenure, ..)| tenure.ended.is_none()) {
            let Some((since, operation)) = self.orphaned(tenure) else {
                continue;
            };
            let time = until.saturating_sub(since);
            if time < SOON || self.was_paused(operation.process, since, *until) {
                continue;
            }
            let releases = self.book.releases.get(&tenure.id).into_iter().flatten();
            let tries: Vec<_> = releases
                .filter(|(at, _)| (since..*until).contains(at))
                .collect();
            let unanswered = tries.iter().all(|(_, answered)| !answered);
            // After one ttl nobody tries any more.
            let again = self.world.plan.patience + PAUSE;
            let least = if time.min(operation.ttl) < again {
                1
            } else {
                2
            };
            if unanswered && tries.len() < least {
                let what = format!(
                    "the lease of #{} was tried to be given back {} times in {time:?}",
                    operation.number,
                    tries.len()
                );
                self.found(ViolationKind::Orphan, *until, what);
            }
        }
    }

    /// Since when nobody has a lease, and whose it was; `None` if somebody may still have it.
    fn orphaned(&self, tenure: &Tenure) -> Option<(Duration, &Operation)> {
        let operations = &self.book.operations;
        let holders = operations.iter().filter(|operation| {
            let tokens = tenure.tokens.0..=tenure.tokens.1;
            is_of(tenure, operation) && operation.token.is_some_and(|t| tokens.contains(&t))
        });
        if let Some(last) = holders.max_by_key(|operation| operation.token) {
            let (at, how) = last.ended?;
            let given_back = matches!(how, Ending::Dropped | Ending::Released) && !last.lingers;
            return given_back.then_some((at, last));
        }
        let asker = &operations[*self.book.ids.get(&tenure.id)?];
        let (at, answer) = asker.answered?;
        // A request that was refused for certain is not followed up: a copy of it that comes late
        // is granted to nobody, and runs out.
        let refused = asker.wait == Wait::Never && answer == CONTENDED;
        // The local queue may have passed the attempt to another task.
        let kept = answer == Answer::Acquired || self.has_rival(asker, Duration::MAX);
        let given_up = !refused && !kept;
        given_up.then_some((at, asker))
    }
}

const CONTENDED: Answer = Answer::Failed(ErrorKind::Contended);

/// Time that it may take until a release is sent.
const SOON: Duration = Duration::from_millis(50);

/// Longest pause between the first try to give a lease back and the next one.
const PAUSE: Duration = Duration::from_millis(100);
