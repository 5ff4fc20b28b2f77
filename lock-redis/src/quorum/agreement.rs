//! Which fencing token an acquisition has. Pure.
//!
//! Each node counts for itself, and the largest of the numbers that a majority gives can be smaller
//! than that of an earlier majority. A token counts once a majority has it *on record* for the
//! acquisition: whoever comes later meets one of these nodes, which gives a larger one.

use super::vote::majority;

/// The tokens that nodes have on record for one acquisition.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    recorded: Vec<Option<u64>>,
    token: u64,
    /// The largest token of somebody else that was met.
    foreign: u64,
}

impl Agreement {
    /// Of so many nodes, none of which has a token on record.
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            recorded: vec![None; nodes],
            token: 0,
            foreign: 0,
        }
    }

    /// The same for an acquisition that goes on with a token of its own choice.
    pub(super) fn on(nodes: usize, token: u64) -> Self {
        let mut agreement = Self::new(nodes);
        agreement.token = token;
        agreement
    }

    /// The node has granted this token, and has it on record.
    pub(super) fn granted(&mut self, node: usize, token: u64) {
        self.recorded[node] = Some(token);
        self.token = self.token.max(token);
    }

    /// The node has the token that is agreed on, on record.
    pub(super) fn raised(&mut self, node: usize) {
        self.recorded[node] = Some(self.token);
    }

    /// The node has given `last` already, to somebody else or as the end of a block.
    pub(super) fn overtaken(&mut self, last: u64) {
        self.foreign = self.foreign.max(last);
    }

    /// The largest token that any node has granted.
    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Whether a majority has the token on record. Nodes that granted it at once count: they have
    /// recorded it for this acquisition when they did.
    pub(super) fn is_reached(&self) -> bool {
        let recorded = self.recorded.iter();
        recorded.filter(|token| **token == Some(self.token)).count()
            >= majority(self.recorded.len())
    }

    /// Whether the node has to be told.
    pub(super) fn is_behind(&self, node: usize) -> bool {
        self.recorded[node] != Some(self.token)
    }

    /// Goes on to a larger token after nodes were found to be beyond this one; false if none was.
    pub(super) fn climb(&mut self) -> bool {
        let climbs = self.foreign >= self.token;
        if climbs {
            self.token = self.foreign + 1;
        }
        climbs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_tokens_of_a_majority_need_no_second_round() {
        let mut agreement = Agreement::new(5);
        agreement.granted(0, 7);
        agreement.granted(4, 7);
        assert!(!agreement.is_reached());
        agreement.granted(2, 7);
        assert!(agreement.is_reached());
        assert_eq!(agreement.token(), 7);
    }

    #[test]
    fn the_largest_token_is_recorded_by_a_majority() {
        let mut agreement = Agreement::new(3);
        agreement.granted(0, 7);
        agreement.granted(1, 9);
        assert_eq!((agreement.token(), agreement.is_reached()), (9, false));
        let behind: Vec<_> = (0..3).filter(|n| agreement.is_behind(*n)).collect();
        assert_eq!(behind, [0, 2]);
        agreement.raised(0);
        assert!(agreement.is_reached());
    }

    #[test]
    fn a_node_that_is_beyond_the_token_makes_it_larger() {
        let mut agreement = Agreement::new(3);
        agreement.granted(0, 7);
        agreement.granted(1, 9);
        agreement.overtaken(12);
        assert!(agreement.climb());
        assert_eq!((agreement.token(), agreement.is_reached()), (13, false));
        assert!(!agreement.climb(), "nothing was met that is larger");
        assert!((0..3).all(|node| agreement.is_behind(node)));
        agreement.raised(2);
        agreement.raised(0);
        assert!(agreement.is_reached());
    }
}
