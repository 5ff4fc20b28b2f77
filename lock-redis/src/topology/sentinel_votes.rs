use crate::config::Endpoint;

/// What the Sentinels say where the master is.
///
/// One alone may be out of date, next to an old master that is cut off and does not know better.
#[derive(Debug)]
pub(super) struct SentinelVotes {
    /// How many Sentinels there are.
    sentinels: usize,
    /// In the order in which they were named first.
    votes: Vec<(Endpoint, usize)>,
}

impl SentinelVotes {
    pub(super) fn new(sentinels: usize) -> Self {
        Self {
            sentinels,
            votes: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, endpoint: Endpoint) {
        match self.votes.iter_mut().find(|(named, _)| *named == endpoint) {
            Some((_, count)) => *count += 1,
            None => self.votes.push((endpoint, 1)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.votes.is_empty()
    }

    /// Whether what leads is what a majority of all Sentinels says.
    pub(super) fn is_decided(&self) -> bool {
        let most = self.votes.iter().map(|(_, count)| *count).max();
        most.is_some_and(|most| 2 * most > self.sentinels)
    }

    /// What most say; of several, the one that was named first.
    pub(super) fn leader(self) -> Option<Endpoint> {
        // The last of the largest ones is taken.
        let votes = self.votes.into_iter().rev();
        votes
            .max_by_key(|(_, count)| *count)
            .map(|(named, _)| named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(sentinels: usize, said: &[u16]) -> (bool, Option<u16>) {
        let mut ballot = SentinelVotes::new(sentinels);
        for port in said {
            ballot.add(Endpoint::tcp("a", *port));
        }
        let is_decided = ballot.is_decided();
        let leader = ballot.leader().map(|leader| match leader {
            Endpoint::Tcp { port, .. } => port,
            Endpoint::Unix(_) => 0,
        });
        (is_decided, leader)
    }

    #[test]
    fn a_majority_of_all_decides_and_else_most_of_those_that_answer_lead() {
        assert_eq!(ballot(3, &[]), (false, None));
        assert_eq!(ballot(1, &[1]), (true, Some(1)));
        assert_eq!(ballot(3, &[1]), (false, Some(1)));
        assert_eq!(ballot(3, &[1, 2]), (false, Some(1)));
        assert_eq!(ballot(3, &[1, 2, 2]), (true, Some(2)));
        assert_eq!(ballot(4, &[2, 1, 2, 1]), (false, Some(2)));
        assert_eq!(ballot(5, &[1, 2, 2]), (false, Some(2)));
    }
}
