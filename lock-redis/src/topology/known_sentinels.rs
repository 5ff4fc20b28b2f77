//! Which Sentinels a client listens to. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::Moment;

use crate::config::Endpoint;

/// How long a Sentinel that never replied is ignored, although others still name it.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// The addresses of the followed Sentinels, with their identities.
///
/// One Sentinel can have several addresses, such as a host name and the IP address that other Sentinels
/// report, so Sentinels are counted by identity (`SENTINEL MYID`).
#[derive(Debug, Default)]
pub(super) struct KnownSentinels {
    identities: HashMap<Endpoint, Option<Arc<str>>>,
    /// Discovered Sentinels that never answered, with the time of the last attempt.
    given_up: HashMap<Endpoint, Moment>,
}

impl KnownSentinels {
    /// Adds a Sentinel of the configuration; returns whether this address has no listener yet.
    pub(super) fn add(&mut self, sentinel: Endpoint) -> bool {
        let is_new = !self.identities.contains_key(&sentinel);
        self.identities.entry(sentinel).or_default();
        is_new
    }

    /// Adds a Sentinel that another one names. Returns false if it is already followed, at any address,
    /// or was given up recently.
    pub(super) fn discover(
        &mut self,
        sentinel: &Endpoint,
        identity: &Arc<str>,
        now: Moment,
    ) -> bool {
        self.given_up
            .retain(|_, since| now.since(*since) < GIVEN_UP);
        if self.identities.contains_key(sentinel)
            || self.given_up.contains_key(sentinel)
            || self.knows(identity)
        {
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

    /// A discovered Sentinel has not replied for a long time.
    pub(super) fn give_up(&mut self, sentinel: &Endpoint, now: Moment) {
        self.remove(sentinel);
        self.given_up.insert(sentinel.clone(), now);
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

    fn second(n: u64) -> Moment {
        Moment::from_nanos(n * 1_000_000_000)
    }

    #[test]
    fn one_that_was_given_up_is_left_alone_for_a_minute() {
        let a = Arc::<str>::from("a");
        let mut followed = KnownSentinels::default();
        assert!(followed.discover(&at("10.0.0.1"), &a, second(0)));
        followed.give_up(&at("10.0.0.1"), second(80));
        assert_eq!(followed.count(), 0, "one that was given up counts");
        assert!(
            !followed.discover(&at("10.0.0.1"), &a, second(139)),
            "followed again within a minute"
        );
        assert!(
            followed.discover(&at("10.0.0.2"), &a, second(139)),
            "its new address"
        );
        followed.remove(&at("10.0.0.2"));
        assert!(
            followed.discover(&at("10.0.0.1"), &a, second(140)),
            "not found again after a minute"
        );
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

        assert!(followed.discover(&at("10.0.0.2"), &b, second(0)));
        assert!(
            !followed.discover(&at("10.0.0.2"), &b, second(0)),
            "it is followed"
        );
        assert!(
            !followed.discover(&at("10.0.0.9"), &a, second(0)),
            "it has a name"
        );
        assert_eq!(followed.count(), 2);

        // One that was down for long is found again, and one that was replaced is another one.
        followed.remove(&at("10.0.0.2"));
        assert_eq!(followed.count(), 1);
        assert!(followed.discover(&at("10.0.0.2"), &b, second(0)));
        assert!(!followed.identify(&at("10.0.0.2"), &c));
        assert_eq!(followed.count(), 2);
        assert!(followed.discover(&at("10.0.0.3"), &b, second(0)));
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
        assert!(followed.discover(&at("10.0.0.2"), &b, second(0)));
        assert_eq!(followed.count(), 1);
        assert!(!followed.add(at("one.internal")), "it is listened to still");
    }
}
