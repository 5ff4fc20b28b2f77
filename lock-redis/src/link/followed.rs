//! Which Sentinels a client listens to. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::config::Endpoint;

/// The addresses at which Sentinels are listened to, with the identity that each has.
///
/// One Sentinel can have several addresses, such as a host name and the IP address that the others
/// know it by: Sentinels are counted by their identities (`SENTINEL MYID`).
#[derive(Debug, Default)]
pub(super) struct Followed(HashMap<Endpoint, Option<Arc<str>>>);

impl Followed {
    /// Adds a Sentinel that the configuration names; whether nobody listens at this address.
    pub(super) fn add(&mut self, sentinel: Endpoint) -> bool {
        let is_new = !self.0.contains_key(&sentinel);
        self.0.entry(sentinel).or_default();
        is_new
    }

    /// Adds a Sentinel that another one knows; whether nobody listens to it, at whatever address.
    pub(super) fn discover(&mut self, sentinel: &Endpoint, identity: &Arc<str>) -> bool {
        if self.0.contains_key(sentinel) || self.knows(identity) {
            return false;
        }
        self.0.insert(sentinel.clone(), Some(Arc::clone(identity)));
        true
    }

    /// A Sentinel says who it is; whether that is known already at another address.
    pub(super) fn identify(&mut self, sentinel: &Endpoint, identity: &Arc<str>) -> bool {
        self.0.remove(sentinel);
        let is_known = self.knows(identity);
        self.0.insert(sentinel.clone(), Some(Arc::clone(identity)));
        is_known
    }

    /// Nobody answers at this address: who does next may be another one.
    pub(super) fn lose(&mut self, sentinel: &Endpoint) {
        if let Some(identity) = self.0.get_mut(sentinel) {
            *identity = None;
        }
    }

    /// Nobody listens at this address any more.
    pub(super) fn remove(&mut self, sentinel: &Endpoint) {
        self.0.remove(sentinel);
    }

    /// How many Sentinels are known by their identity. One that does not answer may be any of those
    /// that others know, or none of them any more.
    pub(super) fn count(&self) -> usize {
        let identities: HashSet<_> = self.0.values().flatten().collect();
        identities.len()
    }

    fn knows(&self, identity: &Arc<str>) -> bool {
        self.0.values().flatten().any(|known| known == identity)
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
        let mut followed = Followed::default();
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
        let mut followed = Followed::default();
        assert!(followed.add(at("one.internal")));
        assert!(!followed.identify(&at("one.internal"), &a));
        followed.lose(&at("one.internal"));
        assert_eq!(followed.count(), 0, "one that is gone counts");
        assert!(followed.discover(&at("10.0.0.2"), &b));
        assert_eq!(followed.count(), 1);
        assert!(!followed.add(at("one.internal")), "it is listened to still");
    }

    #[test]
    fn one_that_does_not_answer_is_found_by_what_others_say() {
        let a = Arc::<str>::from("a");
        let mut followed = Followed::default();
        assert!(followed.add(at("one.internal")));
        assert!(followed.discover(&at("10.0.0.1"), &a));
        assert_eq!(followed.count(), 1);
        assert!(
            followed.identify(&at("one.internal"), &a),
            "the other address is of the same Sentinel"
        );
        assert_eq!(followed.count(), 1);
    }
}
