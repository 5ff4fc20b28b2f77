//! Which Sentinels a client listens to. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::config::Endpoint;

/// The addresses of the followed Sentinels, with their identities.
///
/// One Sentinel can have several addresses, such as a host name and the IP address that other Sentinels
/// report, so Sentinels are counted by identity (`SENTINEL MYID`).
#[derive(Debug, Default)]
pub(super) struct KnownSentinels {
    identities: HashMap<Endpoint, Option<Arc<str>>>,
}

impl KnownSentinels {
    /// Adds a Sentinel of the configuration; returns whether this address has no listener yet.
    pub(super) fn add(&mut self, sentinel: Endpoint) -> bool {
        let is_new = !self.identities.contains_key(&sentinel);
        self.identities.entry(sentinel).or_default();
        is_new
    }

    /// Adds a Sentinel that another one names. Returns false if it is already followed, at any address.
    pub(super) fn discover(&mut self, sentinel: &Endpoint, identity: &Arc<str>) -> bool {
        if self.identities.contains_key(sentinel) || self.knows(identity) {
            return false;
        }
        self.identities
            .insert(sentinel.clone(), Some(Arc::clone(identity)));
        true
    }

    /// A Sentinel reports its id; returns whether it is known already at another address.
    pub(super) fn identify(&mut self, sentinel: &Endpoint, identity: &Arc<str>) -> bool {
        self.identities.remove(sentinel);
        let is_known = self.knows(identity);
        self.identities
            .insert(sentinel.clone(), Some(Arc::clone(identity)));
        is_known
    }

    /// This address does not reply: the next Sentinel there may be a different one.
    pub(super) fn lose(&mut self, sentinel: &Endpoint) {
        if let Some(identity) = self.identities.get_mut(sentinel) {
            *identity = None;
        }
    }

    /// This address has no listener any more.
    pub(super) fn remove(&mut self, sentinel: &Endpoint) {
        self.identities.remove(sentinel);
    }

    /// How many Sentinels are known by identity. A Sentinel that does not reply may be any of those that
    /// other Sentinels report, or be gone.
    pub(super) fn count(&self) -> usize {
        let distinct: HashSet<_> = self.identities.values().flatten().collect();
        distinct.len()
    }

    fn knows(&self, identity: &Arc<str>) -> bool {
        self.identities
            .values()
            .flatten()
            .any(|known| known == identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Endpoint {
        Endpoint::tcp(host, 26_379)
    }

    #[test]
    fn a_sentinel_is_followed_once_and_counted_once() {
        let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
        let mut followed = KnownSentinels::default();
        assert!(followed.add(at("one.internal")));
        assert!(followed.add(at("10.0.0.1")));
        assert!(!followed.add(at("10.0.0.1")), "the same address twice");
        assert_eq!(followed.count(), 0, "nobody has said who it is");

        assert!(!followed.identify(&at("one.internal"), &a));
        assert!(
            followed.identify(&at("10.0.0.1"), &a),
            "a host name and an IP address of one Sentinel"
        );
        assert_eq!(followed.count(), 1);

        assert!(followed.discover(&at("10.0.0.2"), &b));
        assert!(!followed.discover(&at("10.0.0.2"), &b), "it is followed");
        assert!(!followed.discover(&at("10.0.0.9"), &a), "it has a name");
        assert_eq!(followed.count(), 2);

        // One that was down for long is found again, and one that was replaced is another one.
        followed.remove(&at("10.0.0.2"));
        assert_eq!(followed.count(), 1);
        assert!(followed.discover(&at("10.0.0.2"), &b));
        assert!(!followed.identify(&at("10.0.0.2"), &c));
        assert_eq!(followed.count(), 2);
        assert!(followed.discover(&at("10.0.0.3"), &b));
        assert_eq!(followed.count(), 3);
    }

    #[test]
    fn one_that_was_replaced_at_another_address_is_found() {
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        let mut followed = KnownSentinels::default();
        assert!(followed.add(at("one.internal")));
        assert!(!followed.identify(&at("one.internal"), &a));
        followed.lose(&at("one.internal"));
        assert_eq!(followed.count(), 0, "one that is gone counts");
        assert!(followed.discover(&at("10.0.0.2"), &b));
        assert_eq!(followed.count(), 1);
        assert!(!followed.add(at("one.internal")), "it is listened to still");
    }
}
