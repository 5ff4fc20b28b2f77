//! Positions in a queue of nodes or keys that a server puts in order. Pure.
//!
//! The recipe is that of ZooKeeper's documentation ("Recipes and Solutions", locks and shared locks),
//! except that readers wait for the nearest writer, as in Madelson's `DistributedLock`, and that permit
//! waiters queue. Only the first permit waiter watches the directory. Every other one waits until its
//! predecessor leaves the queue or writes that it has a permit.

use crate::mode::Mode;

/// A contender in a queue: a node or a key of a server. For implementors.
pub trait Queued {
    /// The name, which no other contender of the queue has.
    fn name(&self) -> &str;

    /// The mode that it asks for.
    fn mode(&self) -> Mode;
}

/// The position of a contender. For implementors.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a backend has to handle every position"
)]
pub enum QueuePosition {
    /// It is not in the queue.
    Gone,
    /// It holds the lock.
    Holds,
    /// It waits.
    Behind(Blocker),
}

/// What a contender waits for, chosen to wake as few contenders as possible. For implementors.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a backend has to handle every blocker"
)]
pub enum Blocker {
    /// Any change of the directory: for the first permit waiter.
    Directory,
    /// The end of the contender of this name.
    End(String),
    /// The end of this contender, or its permit, which it announces with a write.
    EndOrPermit(String),
}

/// Returns the position of the contender of this name in an ordered queue. For implementors.
#[must_use]
pub fn queue_position<C: Queued>(queue: &[C], name: &str) -> QueuePosition {
    let Some(at) = queue.iter().position(|contender| contender.name() == name) else {
        return QueuePosition::Gone;
    };
    let before = &queue[..at];
    let end = |blocker: &C| QueuePosition::Behind(Blocker::End(blocker.name().to_owned()));
    match queue[at].mode() {
        Mode::Exclusive => before.last().map_or(QueuePosition::Holds, end),
        Mode::Permit { .. } => permit_position(queue, at),
        Mode::Shared => {
            let is_in_the_way = |other: &&C| other.mode() != Mode::Shared;
            let blocker = before.iter().rfind(is_in_the_way);
            blocker.map_or(QueuePosition::Holds, end)
        }
    }
}

fn permit_position<C: Queued>(queue: &[C], at: usize) -> QueuePosition {
    let before = &queue[..at];
    let blocker = before.iter().rposition(|other| limit(other).is_none());
    let permits = &queue[blocker.map_or(0, |blocker| blocker + 1)..=at];
    // No overtaking: behind a contender that has to wait, all others wait.
    let waits = |(ahead, own): (usize, &C)| limit(own).is_some_and(|limit| ahead >= limit);
    let first = permits.iter().enumerate().position(waits);
    let name = |contender: &C| contender.name().to_owned();
    QueuePosition::Behind(match (first, blocker, before.last()) {
        (None, None, _) => return QueuePosition::Holds,
        (None, Some(blocker), _) => Blocker::End(name(&before[blocker])),
        // The contender that the blocker's end wakes gets a permit, and others after it.
        (Some(first), _, Some(last)) if blocker.is_some() || first + 1 < permits.len() => {
            Blocker::EndOrPermit(name(last))
        }
        (Some(_), _, _) => Blocker::Directory,
    })
}

/// Returns the number of holders in an ordered queue, in which they come first. For implementors.
#[must_use]
pub fn queue_holders<C: Queued>(queue: &[C]) -> usize {
    let holds = |own: &&C| queue_position(queue, own.name()) == QueuePosition::Holds;
    queue.iter().take_while(holds).count()
}

/// The limit of a permit.
fn limit<C: Queued>(contender: &C) -> Option<usize> {
    match contender.mode() {
        Mode::Permit { limit } => usize::try_from(limit.get()).ok(),
        Mode::Exclusive | Mode::Shared => None,
    }
}

#[cfg(test)]
mod tests;
