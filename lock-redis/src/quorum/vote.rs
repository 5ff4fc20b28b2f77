//! What the answers of some nodes come to. Pure.

/// How many of so many nodes decide: any two majorities have a node in common.
pub(super) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The answers of nodes to one question so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Votes {
    nodes: usize,
    pub(super) yes: usize,
    pub(super) no: usize,
    /// Nodes that cannot be asked, or do not answer.
    pub(super) silent: usize,
}

/// Whether an acquisition has its votes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Election {
    Lost,
    /// More answers can change it.
    Open,
    /// A majority does not answer.
    Unreachable,
    Won,
}

/// Whether a majority has a lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    No,
    /// More answers can change it.
    Open,
    Unknown,
    Yes,
}

impl Votes {
    pub(super) const fn new(nodes: usize) -> Self {
        Self {
            nodes,
            yes: 0,
            no: 0,
            silent: 0,
        }
    }

    const fn outstanding(&self) -> usize {
        self.nodes - self.yes - self.no - self.silent
    }

    const fn majority(&self) -> usize {
        majority(self.nodes)
    }

    /// Lost only if a majority has answered: silence is not contention. With a majority of answers
    /// and one refusal among them, somebody else is in the way.
    pub(super) const fn election(&self) -> Election {
        if self.yes >= self.majority() {
            Election::Won
        } else if self.yes + self.outstanding() >= self.majority() {
            Election::Open
        } else if self.nodes - self.silent < self.majority() {
            Election::Unreachable
        } else if self.yes + self.no >= self.majority() {
            Election::Lost
        } else {
            // It is lost, and not known to whom: to a holder or to an outage.
            Election::Open
        }
    }

    pub(super) const fn verdict(&self) -> Verdict {
        // Fewer than this many holders are left if so many say no.
        let most_no = self.nodes - self.majority();
        if self.yes >= self.majority() {
            Verdict::Yes
        } else if self.no > most_no {
            Verdict::No
        } else if self.yes + self.outstanding() >= self.majority()
            || self.no + self.outstanding() > most_no
        {
            Verdict::Open
        } else {
            Verdict::Unknown
        }
    }

    /// Whether the refusals alone show a holder, and not only others that compete.
    pub(super) const fn is_held(&self) -> bool {
        self.no > self.nodes - self.majority()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn votes(nodes: usize, yes: usize, no: usize, silent: usize) -> Votes {
        Votes {
            nodes,
            yes,
            no,
            silent,
        }
    }

    #[test]
    fn an_election_ends_as_soon_as_it_can() {
        for (nodes, (yes, no, silent), expected) in [
            (3, (0, 0, 0), Election::Open),
            (3, (2, 0, 0), Election::Won),
            (3, (1, 1, 0), Election::Open),
            (3, (1, 1, 1), Election::Lost),
            (3, (0, 2, 0), Election::Lost),
            (3, (0, 0, 2), Election::Unreachable),
            (3, (1, 0, 2), Election::Unreachable),
            // It cannot be won, and the last answer tells an outage from a holder.
            (3, (0, 1, 1), Election::Open),
            (3, (0, 2, 1), Election::Lost),
            (3, (0, 1, 2), Election::Unreachable),
            // An even number of nodes carries as many losses as one less.
            (4, (2, 2, 0), Election::Lost),
            (4, (3, 0, 0), Election::Won),
            (4, (2, 0, 2), Election::Unreachable),
            (5, (2, 0, 2), Election::Open),
            (5, (3, 2, 0), Election::Won),
            (5, (2, 1, 2), Election::Lost),
            (5, (0, 0, 3), Election::Unreachable),
            (5, (0, 1, 2), Election::Open),
            (5, (0, 3, 0), Election::Lost),
        ] {
            let votes = votes(nodes, yes, no, silent);
            assert_eq!(votes.election(), expected, "{votes:?}");
        }
    }

    #[test]
    fn a_verdict_is_definite_or_unknown() {
        for (nodes, (yes, no, silent), expected) in [
            (3, (1, 0, 0), Verdict::Open),
            (3, (2, 0, 0), Verdict::Yes),
            (3, (1, 1, 0), Verdict::Open),
            (3, (1, 1, 1), Verdict::Unknown),
            (3, (1, 2, 0), Verdict::No),
            (3, (0, 0, 2), Verdict::Unknown),
            // Of four nodes two are no majority, whoever the others are.
            (4, (2, 2, 0), Verdict::No),
            (4, (2, 1, 1), Verdict::Unknown),
            (5, (2, 2, 1), Verdict::Unknown),
            (5, (2, 2, 0), Verdict::Open),
            (5, (0, 3, 2), Verdict::No),
            (5, (3, 0, 2), Verdict::Yes),
        ] {
            let votes = votes(nodes, yes, no, silent);
            assert_eq!(votes.verdict(), expected, "{votes:?}");
        }
    }

    #[test]
    fn two_majorities_meet_and_no_two_can_be_told_opposite_things() {
        for nodes in 1..20 {
            assert!(2 * majority(nodes) > nodes);
            let all = (0..=nodes).flat_map(|yes| (0..=nodes - yes).map(move |no| (yes, no)));
            for (yes, no) in all {
                let silent = nodes - yes - no;
                let votes = votes(nodes, yes, no, silent);
                assert_ne!(votes.election(), Election::Open, "{votes:?}");
                assert_ne!(votes.verdict(), Verdict::Open, "{votes:?}");
                if votes.is_held() {
                    assert_ne!(votes.election(), Election::Won, "{votes:?}");
                }
            }
        }
    }
}
