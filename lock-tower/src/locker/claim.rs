use std::future::poll_fn;
use std::task::Poll;

use lock_core::{AcquireRequest, Error, LockGuard, LockKey, Released};

use super::crowd::Place;
use super::namespace::Namespace;

/// Locks of one request, with its admissions. Dropped, all are released.
pub(crate) struct Claim {
    namespace: Namespace,
    /// Sorted by key; empty if the request is unprotected.
    guards: Vec<LockGuard>,
    /// What the request asked for without getting it.
    missing: Vec<LockKey>,
    places: Vec<Place>,
}

impl Claim {
    pub(super) fn new(
        namespace: &Namespace,
        guards: Vec<LockGuard>,
        mut places: Vec<Place>,
    ) -> Self {
        places.iter_mut().for_each(Place::granted);
        Self {
            namespace: namespace.clone(),
            guards,
            missing: Vec::new(),
            places,
        }
    }

    pub(super) fn unprotected(
        namespace: &Namespace,
        requests: &[AcquireRequest],
        mut places: Vec<Place>,
    ) -> Self {
        places.iter_mut().for_each(Place::granted);
        let missing = requests.iter().map(|request| request.key().clone());
        Self {
            namespace: namespace.clone(),
            guards: Vec::new(),
            missing: missing.collect(),
            places,
        }
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub(crate) fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    pub(crate) fn missing(&self) -> &[LockKey] {
        &self.missing
    }

    /// Gives all of them back at the same time, and reports the worst outcome.
    ///
    /// Dropped, what has not been sent yet is sent in the background.
    pub(crate) async fn release(self) -> Result<Released, Error> {
        let Self { guards, places, .. } = self;
        let outcome = match <[LockGuard; 1]>::try_from(guards) {
            Ok([guard]) => guard.release().await,
            Err(guards) => release_all(guards).await,
        };
        // After the locks: the next request is counted as the next.
        drop(places);
        outcome
    }
}

async fn release_all(guards: Vec<LockGuard>) -> Result<Released, Error> {
    let mut releases: Vec<_> = guards
        .into_iter()
        .map(|guard| Box::pin(guard.release()))
        .collect();
    let mut worst = Ok(Released::Clean);
    poll_fn(|cx| {
        releases.retain_mut(|release| match release.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(outcome) => {
                if worst.is_ok() && !matches!(outcome, Ok(Released::Clean)) {
                    worst = outcome;
                }
                false
            }
        });
        match releases.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    worst
}
