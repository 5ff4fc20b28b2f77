//! Who of the contenders holds the lock, and whom the others wait for. Pure.

use lock_core::Mode;
use lock_core::engine::LeaseId;

use super::tree::Contender;

/// Where a contender stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// Its node is not there.
    Gone,
    /// It holds the lock.
    Holds,
    /// It waits for the node with this id to go.
    Behind(LeaseId),
}

/// A writer waits for the node before it, a reader for the last writer before it.
pub(super) fn standing(contenders: &[Contender], id: LeaseId) -> Standing {
    let Some(at) = contenders.iter().position(|node| node.id == id) else {
        return Standing::Gone;
    };
    let (before, own) = (&contenders[..at], &contenders[at]);
    let blocks = |node: &&Contender| own.mode != Mode::Shared || node.mode != Mode::Shared;
    match before.iter().rev().find(blocks) {
        Some(blocker) => Standing::Behind(blocker.id),
        None => Standing::Holds,
    }
}

/// Those who hold the lock; they come first.
pub(super) fn holders(contenders: &[Contender]) -> impl Iterator<Item = &Contender> {
    contenders
        .iter()
        .filter(|node| standing(contenders, node.id) == Standing::Holds)
}

#[cfg(test)]
mod tests {
    use lock_core::Label;
    use lock_core::engine::OsEntropy;

    use super::*;

    fn contenders(modes: &[Mode]) -> Vec<Contender> {
        let node = |mode: &Mode| Contender {
            id: LeaseId::random(&OsEntropy::default()),
            mode: *mode,
            label: Label::of_this_process(),
            token: None,
        };
        modes.iter().map(node).collect()
    }

    #[test]
    fn writers_wait_for_the_node_before_and_readers_for_the_last_writer() {
        use Mode::{Exclusive as W, Shared as R};
        let nodes = contenders(&[R, R, W, R, W, W]);
        let expected = [None, None, Some(1), Some(2), Some(3), Some(4)];
        for (node, blocker) in nodes.iter().zip(expected) {
            let expected =
                blocker.map_or(Standing::Holds, |at: usize| Standing::Behind(nodes[at].id));
            assert_eq!(standing(&nodes, node.id), expected);
        }
        assert_eq!(holders(&nodes).count(), 2);
    }

    #[test]
    fn who_is_not_there_is_gone() {
        let nodes = contenders(&[Mode::Exclusive, Mode::Exclusive]);
        assert_eq!(standing(&nodes[1..], nodes[0].id), Standing::Gone);
    }
}
