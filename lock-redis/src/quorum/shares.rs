//! What each node may keep of one acquisition.

use tokio::sync::watch;

use super::vote::Votes;

/// The nodes of one acquisition.
#[derive(Debug)]
pub(super) struct Shares(watch::Sender<Vec<Share>>);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Share {
    /// It may have granted the lock.
    Asked,
    Granted,
    /// It has nothing, for certain.
    Nothing,
    /// It had the lock until the release.
    Released,
}

impl Shares {
    /// Nobody is asked yet.
    pub(super) fn none(nodes: usize) -> Self {
        Self(watch::Sender::new(vec![Share::Nothing; nodes]))
    }

    /// Every node may have something.
    pub(super) fn unknown(nodes: usize) -> Self {
        Self(watch::Sender::new(vec![Share::Asked; nodes]))
    }

    /// All nodes are about to be asked.
    pub(super) fn ask(&self) {
        self.0.send_modify(|shares| shares.fill(Share::Asked));
    }

    pub(super) fn granted(&self, node: usize) {
        self.settle(node, Share::Granted);
    }

    pub(super) fn refused(&self, node: usize) {
        self.settle(node, Share::Nothing);
    }

    /// A node has released the lock, or has not had it.
    pub(super) fn released(&self, node: usize, was_held: bool) {
        let share = if was_held {
            Share::Released
        } else {
            Share::Nothing
        };
        self.0.send_modify(|shares| shares[node] = share);
    }

    /// Waits until no node is known to have the lock.
    pub(super) async fn freed(&self) {
        let mut shares = self.0.subscribe();
        let freed = shares.wait_for(|shares| !shares.contains(&Share::Granted));
        // The sender is here.
        drop(freed.await);
    }

    /// Which nodes may still have something.
    pub(super) fn open(&self) -> Vec<bool> {
        let shares = self.0.borrow();
        let is_open = |share: &Share| matches!(share, Share::Asked | Share::Granted);
        shares.iter().map(is_open).collect()
    }

    /// Which nodes have the lock, as far as is known.
    pub(super) fn held(&self) -> Vec<bool> {
        let shares = self.0.borrow();
        shares
            .iter()
            .map(|share| *share == Share::Granted)
            .collect()
    }

    /// The answers to the release.
    pub(super) fn votes(&self) -> Votes {
        let shares = self.0.borrow();
        let count = |wanted| shares.iter().filter(|share| **share == wanted).count();
        let mut votes = Votes::new(shares.len());
        votes.yes = count(Share::Released);
        votes.no = count(Share::Nothing);
        votes
    }

    /// Takes an answer to the acquisition, which may come after the release.
    fn settle(&self, node: usize, share: Share) {
        self.0.send_modify(|shares| {
            if shares[node] == Share::Asked {
                shares[node] = share;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::vote::Verdict;
    use super::*;

    #[test]
    fn what_may_be_held_is_released_and_counted() {
        let shares = Shares::none(3);
        assert_eq!(shares.open(), [false; 3], "nobody was asked");
        shares.ask();
        shares.granted(0);
        shares.refused(2);
        assert_eq!(shares.open(), [true, true, false]);
        assert_eq!(shares.held(), [true, false, false]);
        shares.released(0, true);
        assert_eq!(shares.votes().verdict(), Verdict::Open);
        shares.released(1, false);
        assert_eq!(shares.votes().verdict(), Verdict::No);
        assert_eq!(shares.open(), [false; 3]);
    }

    #[test]
    fn a_late_answer_does_not_undo_a_release() {
        let shares = Shares::unknown(3);
        shares.released(1, false);
        shares.granted(1);
        assert_eq!(shares.open(), [true, false, true]);
    }
}
