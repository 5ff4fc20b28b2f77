use lock_core::{AcquireRequest, Error, LockGuard, LockKey, Released};

use super::crowd::Place;

/// Locks of one request, with its places among those who want them. Dropped, all are given back.
pub(crate) struct Claim {
    /// Sorted by key; empty if the request is unprotected.
    guards: Vec<LockGuard>,
    /// What the request asked for without getting it.
    missing: Vec<LockKey>,
    places: Vec<Place>,
}

impl Claim {
    pub(super) fn new(guards: Vec<LockGuard>, mut places: Vec<Place>) -> Self {
        places.iter_mut().for_each(Place::granted);
        Self {
            guards,
            missing: Vec::new(),
            places,
        }
    }

    pub(super) fn unprotected(requests: &[AcquireRequest], mut places: Vec<Place>) -> Self {
        places.iter_mut().for_each(Place::granted);
        let missing = requests.iter().map(|request| request.key().clone());
        Self {
            guards: Vec::new(),
            missing: missing.collect(),
            places,
        }
    }

    pub(crate) fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    pub(crate) fn missing(&self) -> &[LockKey] {
        &self.missing
    }

    /// Gives all of them back, and reports the worst outcome.
    ///
    /// Dropped, what has not been sent yet is sent in the background.
    pub(crate) async fn release(mut self) -> Result<Released, Error> {
        let mut worst = Ok(Released::Clean);
        while let Some(guard) = self.guards.pop() {
            match (guard.release().await, &worst) {
                (Err(error), Ok(_)) => worst = Err(error),
                (Ok(Released::AlreadyLost), Ok(_)) => worst = Ok(Released::AlreadyLost),
                _ => {}
            }
        }
        // After the locks: who comes next is counted as the next.
        self.places.clear();
        worst
    }
}
