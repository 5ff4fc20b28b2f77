//! Which contenders hold the lock, and what the others wait for. Pure.
//!
//! The recipe is that of ZooKeeper's documentation ("Recipes and Solutions", locks and shared locks),
//! except that readers wait for the nearest writer, as in Madelson's `DistributedLock`, and that permit
//! waiters queue. Only the first permit waiter watches the directory. Each other one waits until its
//! predecessor goes, or writes its node because it has got a permit.

use polylock_core::Mode;

use crate::recipe::names::Contender;

/// Where a contender stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum QueuePosition {
    /// Its node is not there.
    Gone,
    /// It holds the lock.
    Holds,
    /// It waits.
    Behind(Blocker),
}

/// What a contender waits for, chosen to wake as few contenders as possible.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Blocker {
    /// The end of this node.
    End(String),
    /// The end of this node, or its getting a permit.
    EndOrPermit(String),
    /// Any change of the directory: for the first permit waiter.
    Directory,
}

/// The contenders among the children of a directory, in line.
///
/// Numbers are compared with the one of `own`, if it is there, so that the order holds across the
/// wrap of the counter.
pub(crate) fn contenders_in_order<'a>(
    names: impl IntoIterator<Item = &'a str>,
    own: Option<&str>,
) -> Vec<Contender> {
    let mut line: Vec<_> = names.into_iter().filter_map(Contender::parse).collect();
    let pivot = line
        .iter()
        .find(|contender| Some(&*contender.name) == own)
        .or_else(|| line.first());
    if let Some(pivot) = pivot.map(|contender| contender.sequence) {
        line.sort_by_key(|contender| contender.sequence.after(pivot));
    }
    line
}

/// Where the contender of this name stands.
pub(crate) fn queue_position(line: &[Contender], name: &str) -> QueuePosition {
    let Some(at) = line.iter().position(|contender| contender.name == name) else {
        return QueuePosition::Gone;
    };
    let (before, own) = (&line[..at], &line[at]);
    let end = |blocker: &Contender| QueuePosition::Behind(Blocker::End(blocker.name.clone()));
    match own.mode {
        Mode::Permit { .. } => {
            let blocker = before.iter().rposition(|other| limit(other).is_none());
            let permits = &line[blocker.map_or(0, |blocker| blocker + 1)..=at];
            // No overtaking: behind a contender that has to wait, all others wait.
            let waits = |(ahead, own)| limit(own).is_some_and(|limit| ahead >= limit);
            let first = permits.iter().enumerate().position(waits);
            QueuePosition::Behind(match (first, blocker, before.last()) {
                (None, None, _) => return QueuePosition::Holds,
                (None, Some(blocker), _) => Blocker::End(before[blocker].name.clone()),
                // The contender that the blocker's end wakes gets a permit, and others after it.
                (Some(first), _, Some(last)) if blocker.is_some() || first + 1 < permits.len() => {
                    Blocker::EndOrPermit(last.name.clone())
                }
                (Some(_), _, _) => Blocker::Directory,
            })
        }
        Mode::Shared => {
            let is_in_the_way = |other: &&Contender| other.mode != Mode::Shared;
            before
                .iter()
                .rev()
                .find(is_in_the_way)
                .map_or(QueuePosition::Holds, end)
        }
        _ => before.last().map_or(QueuePosition::Holds, end),
    }
}

/// The holders; they come first.
pub(crate) fn holders(line: &[Contender]) -> usize {
    let holds =
        |contender: &&Contender| queue_position(line, &contender.name) == QueuePosition::Holds;
    line.iter().take_while(holds).count()
}

/// The limit of a permit.
fn limit(contender: &Contender) -> Option<usize> {
    match contender.mode {
        Mode::Permit { limit } => usize::try_from(limit.get()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
