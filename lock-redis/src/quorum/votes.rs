//! The vote of one node, the result of all votes, and the size of a majority.

use std::time::Duration;

/// The number of nodes that decide: any two majorities have a node in common.
pub(super) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whether the remaining nodes are fewer than a majority.
pub(crate) const fn is_too_few(nodes: usize, without: usize) -> bool {
    nodes - without < majority(nodes)
}

/// The answers of nodes to one question so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Votes {
    nodes: usize,
    yes: usize,
    no: usize,
    /// Nodes that are unreachable or do not reply.
    silent: usize,
}

/// The result of the replies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Decision {
    No,
    /// Further replies can change it.
    Open,
    /// Too few nodes answer.
    Unknown,
    Yes,
}

impl Votes {
    pub(super) fn new(nodes: usize) -> Self {
        let none = Self::default();
        Self { nodes, ..none }
    }

    /// Counts the reply of one node; `None` if it did not reply.
    pub(super) fn add(&mut self, answer: Option<bool>) {
        let count = match answer {
            Some(true) => &mut self.yes,
            Some(false) => &mut self.no,
            None => &mut self.silent,
        };
        *count += 1;
    }

    const fn outstanding(&self) -> usize {
        self.nodes - self.yes - self.no - self.silent
    }

    const fn majority(&self) -> usize {
        majority(self.nodes)
    }

    /// Whether an acquisition has its votes. `No` only if a majority has replied: silence is not
    /// contention. A refusal in a majority of replies shows another client.
    pub(super) const fn election(&self) -> Decision {
        if self.yes >= self.majority() {
            Decision::Yes
        } else if self.yes + self.outstanding() >= self.majority() {
            Decision::Open
        } else if self.nodes - self.silent < self.majority() {
            Decision::Unknown
        } else if self.yes + self.no >= self.majority() {
            Decision::No
        } else {
            // It is lost, either because of a holder or because of an outage.
            Decision::Open
        }
    }

    /// Whether a majority has a lease.
    pub(super) const fn verdict(&self) -> Decision {
        let minority = self.nodes - self.majority();
        if self.yes >= self.majority() {
            Decision::Yes
        } else if self.is_refused() {
            Decision::No
        } else if self.yes + self.outstanding() >= self.majority()
            || self.no + self.outstanding() > minority
        {
            Decision::Open
        } else {
            Decision::Unknown
        }
    }

    /// Whether the refusals alone rule out a majority.
    const fn is_refused(&self) -> bool {
        self.no > self.nodes - self.majority()
    }

    /// Whether another client certainly does not only compete for the lock. Where some nodes vote for this
    /// client, the others may have voted for several clients, none of which has a majority. A holder that one
    /// of the nodes does not know, because it has restarted, looks the same: it costs a few more attempts.
    pub(super) const fn is_held(&self) -> bool {
        self.is_refused() && self.yes == 0
    }
}

/// The reply of a node to an acquisition.
#[derive(Clone, Debug)]
pub(super) enum Vote {
    /// With this token.
    Granted(u64),
    /// By another holder.
    Held {
        /// For at most this long unless it is renewed.
        left: Option<Duration>,
        /// The last token that the node has on record; 0 if it has none or does not say.
        last: u64,
    },
    /// The node may have restarted and forgotten a holder, and does not vote yet.
    Rejoining {
        /// For this long.
        left: Duration,
        /// The last token that the node has on record; 0 if it has none.
        last: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::Decision::{No, Open, Unknown, Yes};
    use super::*;

    fn votes(nodes: usize, (yes, no, silent): (usize, usize, usize)) -> Votes {
        Votes {
            nodes,
            yes,
            no,
            silent,
        }
    }

    #[test]
    fn answers_decide_as_soon_as_they_can() {
        for (nodes, answers, election, verdict) in [
            (3, (0, 0, 0), Open, Open),
            (3, (1, 0, 0), Open, Open),
            (3, (2, 0, 0), Yes, Yes),
            (3, (1, 1, 0), Open, Open),
            (3, (1, 1, 1), No, Unknown),
            (3, (0, 2, 0), No, No),
            (3, (1, 2, 0), No, No),
            (3, (0, 0, 2), Unknown, Unknown),
            (3, (1, 0, 2), Unknown, Unknown),
            // It cannot be won, and the last reply distinguishes an outage from a holder.
            (3, (0, 1, 1), Open, Open),
            (3, (0, 2, 1), No, No),
            (3, (0, 1, 2), Unknown, Unknown),
            // An even number of nodes carries as many losses as one less: of four, two are no majority.
            (4, (2, 2, 0), No, No),
            (4, (2, 1, 1), No, Unknown),
            (4, (3, 0, 0), Yes, Yes),
            (4, (2, 0, 2), Unknown, Unknown),
            (5, (2, 0, 2), Open, Open),
            (5, (2, 2, 0), Open, Open),
            (5, (2, 2, 1), No, Unknown),
            (5, (3, 2, 0), Yes, Yes),
            (5, (3, 0, 2), Yes, Yes),
            (5, (2, 1, 2), No, Unknown),
            (5, (0, 0, 3), Unknown, Unknown),
            (5, (0, 1, 2), Open, Open),
            (5, (0, 3, 0), No, No),
            (5, (0, 3, 2), No, No),
        ] {
            let votes = votes(nodes, answers);
            let decided = (votes.election(), votes.verdict());
            assert_eq!(decided, (election, verdict), "{votes:?}");
        }
    }

    #[test]
    fn a_client_with_a_vote_competes() {
        for (nodes, answers, is_held) in [
            (3, (0, 2, 0), true),
            (3, (0, 2, 1), true),
            (3, (0, 3, 0), true),
            (3, (1, 1, 1), false),
            (3, (1, 2, 0), false),
            (5, (0, 3, 0), true),
            (5, (0, 2, 3), false),
            (5, (1, 4, 0), false),
            (5, (2, 3, 0), false),
        ] {
            let votes = votes(nodes, answers);
            assert_eq!(votes.is_held(), is_held, "{votes:?}");
        }
    }

    #[test]
    fn two_majorities_meet_and_all_answers_decide() {
        for nodes in 1..20 {
            assert!(2 * majority(nodes) > nodes);
            let all = (0..=nodes).flat_map(|yes| (0..=nodes - yes).map(move |no| (yes, no)));
            for (yes, no) in all {
                let votes = votes(nodes, (yes, no, nodes - yes - no));
                assert_ne!(votes.election(), Open, "{votes:?}");
                assert_ne!(votes.verdict(), Open, "{votes:?}");
                assert!(!votes.is_refused() || votes.election() != Yes, "{votes:?}");
            }
        }
    }

    #[test]
    fn a_majority_ends_with_its_last_node() {
        for (nodes, least) in [(1, 1), (3, 2), (4, 2), (5, 3), (6, 3)] {
            let without = (0..=nodes).find(|without| is_too_few(nodes, *without));
            assert_eq!(without, Some(least), "of {nodes}");
        }
    }
}
