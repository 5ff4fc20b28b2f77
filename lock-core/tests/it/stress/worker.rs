use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use polylock_core::layers::LocalQueue;
use polylock_core::memory::{Fault, Memory, Request};
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, MultiGuard, Owner, Renewal};

use super::chance::Chance;
use super::witness::Witness;
use super::{FORGOTTEN, KEYS};

/// One task and what it does.
pub(crate) struct Worker {
    pub(crate) locks: Arc<LocalQueue>,
    pub(crate) store: Arc<Memory>,
    pub(crate) witness: Arc<Witness>,
    pub(crate) chance: Chance,
}

impl Worker {
    pub(crate) async fn work(mut self, operations: u64) {
        for _ in 0..operations {
            if self.chance.one_in(50) {
                self.disturb();
            }
            let key = self.chance.of(&KEYS);
            if self.witness.breaking && self.chance.one_in(4) {
                self.break_lock(key).await;
            }
            let little = Wait::AtMost(self.chance.micros(0..4_000));
            match self.chance.below(9) {
                0 | 1 => self.wait(key, Wait::Forever).await,
                2 => self.wait(key, little).await,
                3 => self.wait(key, Wait::Never).await,
                4 => self.give_up_after_a_time(key).await,
                5 => self.give_up_after_polls(key).await,
                6 => self.be_aborted(key).await,
                7 => self.enter_again(key).await,
                _ => self.lock_two(key).await,
            }
        }
    }

    /// Plans a fault for the next request of a kind, of any task.
    fn disturb(&mut self) {
        let late = Fault::LateReply(self.chance.micros(0..3_000));
        let faults = [
            late,
            Fault::Duplicated,
            Fault::LostReply,
            Fault::LostRequest,
        ];
        let request = self.chance.of(&[Request::Acquire, Request::Release]);
        self.store.faults().plan(request, self.chance.of(&faults));
    }

    /// Breaks the lock, which notifies the holder, or ends its lease silently.
    async fn break_lock(&mut self, key: &str) {
        let key = LockKey::new(key).unwrap();
        match self.chance.one_in(2) {
            true => drop(self.store.admin().unwrap().break_lock(&key, "stress").await),
            false => self.store.expire(&key),
        }
        self.witness.broken.fetch_add(1, Ordering::Relaxed);
    }

    /// Of two lengths of lease, which do not pass between each other.
    fn request(&mut self, key: &str) -> AcquireRequest {
        let request = AcquireRequest::new(LockKey::new(key).unwrap());
        let request = match self.chance.one_in(8) {
            true => request.with_ttl(Duration::from_secs(20)),
            false => request,
        };
        match self.chance.one_in(8) {
            true => request.with_renewal(Renewal::Manual),
            false => request,
        }
    }

    async fn wait(&mut self, key: &'static str, wait: Wait) {
        let request = self.request(key).with_wait(wait);
        let served = tokio::time::timeout(FORGOTTEN, self.locks.acquire(&request)).await;
        let served = served.unwrap_or_else(|_| panic!("a waiter of {key} was not served"));
        self.use_unless_dropped(key, Some(served)).await;
    }

    async fn give_up_after_a_time(&mut self, key: &'static str) {
        let limit = self.chance.micros(0..3_000);
        let request = self.request(key);
        let served = tokio::time::timeout(limit, self.locks.acquire(&request)).await;
        self.use_unless_dropped(key, served.ok()).await;
    }

    async fn give_up_after_polls(&mut self, key: &'static str) {
        let polls = self.chance.below(6);
        let request = self.request(key);
        let served = poll_times(self.locks.acquire(&request), polls).await;
        self.use_unless_dropped(key, served).await;
    }

    async fn be_aborted(&mut self, key: &'static str) {
        let (locks, request) = (Arc::clone(&self.locks), self.request(key));
        let task = tokio::spawn(async move { locks.acquire(&request).await });
        match self.chance.one_in(2) {
            true => tokio::time::sleep(self.chance.micros(0..2_000)).await,
            false => tokio::task::yield_now().await,
        }
        task.abort();
        self.use_unless_dropped(key, task.await.ok()).await;
    }

    async fn enter_again(&mut self, key: &'static str) {
        let owner = Owner::new();
        let outer = self.locks.request(key).owner(&owner).acquire().await;
        let Some(outer) = self.granted(outer) else {
            return;
        };
        let token = outer.fencing_token();
        let inner = self.locks.request(key).owner(&owner).try_acquire().await;
        let Some(inner) = self.granted(inner).flatten() else {
            return assert!(self.witness.breaking, "the owner is inside");
        };
        assert!(inner.fencing_token() == token || self.witness.breaking);
        self.witness.entered.fetch_add(1, Ordering::Relaxed);
        let (first, last) = if self.chance.one_in(2) {
            (outer, inner)
        } else {
            (inner, outer)
        };
        drop(first.release().await);
        self.use_and_end(key, last).await;
    }

    async fn lock_two(&mut self, key: &'static str) {
        let other = self.chance.of(&KEYS);
        let served = self.locks.lock_all([key, other]).await;
        let Some(both) = self.granted(served) else {
            return;
        };
        let inside: Vec<_> = both
            .guards()
            .iter()
            .map(|guard| self.witness.enter(guard))
            .collect();
        self.linger().await;
        drop(inside);
        self.end_both(both).await;
    }

    async fn use_unless_dropped(
        &mut self,
        key: &'static str,
        served: Option<Result<LockGuard, Error>>,
    ) {
        match served {
            Some(served) => {
                if let Some(guard) = self.granted(served) {
                    self.use_and_end(key, guard).await;
                }
            }
            None => drop(self.witness.dropped.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// What was granted; a refusal or a disturbed request is none.
    fn granted<G>(&self, served: Result<G, Error>) -> Option<G> {
        let counter = match &served {
            Ok(_) => &self.witness.granted,
            Err(error) if error.kind() == ErrorKind::Contended => &self.witness.contended,
            Err(error) if error.kind() == ErrorKind::Unavailable => &self.witness.disturbed,
            Err(error) if self.witness.breaking && error.kind() == ErrorKind::Lost => {
                &self.witness.disturbed
            }
            Err(error) => panic!("{error:?}"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        served.ok()
    }

    async fn use_and_end(&mut self, key: &'static str, guard: LockGuard) {
        assert_eq!(guard.key().as_str(), key);
        let inside = self.witness.enter(&guard);
        self.linger().await;
        assert!(guard.is_held() || self.witness.breaking);
        drop(inside);
        match self.chance.below(4) {
            0 => drop(guard),
            1 => drop(std::thread::spawn(move || drop(guard)).join()),
            2 => drop(poll_times(guard.release(), 1).await),
            // A disturbed release is followed up in the background.
            _ => drop(guard.release().await),
        }
    }

    async fn end_both(&mut self, both: MultiGuard) {
        match self.chance.one_in(2) {
            true => drop(both),
            false => drop(both.release().await),
        }
    }

    async fn linger(&mut self) {
        match self.chance.below(8) {
            0 => tokio::time::sleep(self.chance.micros(0..1_500)).await,
            1 | 2 => tokio::task::yield_now().await,
            _ => {}
        }
    }
}

/// Polls at most so often, and drops the future if it is not ready by then.
async fn poll_times<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}
