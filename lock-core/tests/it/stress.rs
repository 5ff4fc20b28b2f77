//! Two clients of one store under load in real time, with futures dropped wherever chance has it.
//!
//! Prints its seed; `STRESS_SEED=n` starts with another one, `STRESS_OPERATIONS=n` does more. Threads
//! interleave as they like, so a seed makes a failure likely and not certain.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "all of it is one test"
)]

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use polylock_core::layers::LocalQueue;
use polylock_core::memory::{Fault, Memory, Request};
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, MultiGuard, Owner, Renewal};
use tokio::task::yield_now;

use super::support::poll_times;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const TASKS: u64 = 64;
const OPERATIONS: u64 = 300;

/// A wait takes this long only if a waiter was forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

#[test]
fn no_client_overlaps_overtakes_or_starves() {
    stress(Witness::default());
}

#[test]
fn broken_locks_strand_no_client() {
    stress(Witness::of_breaking());
}

fn stress(witness: Witness) {
    let seed = number("STRESS_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("STRESS_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let operations = number("STRESS_OPERATIONS").unwrap_or(OPERATIONS);
    runtime.block_on(run(seed, operations, Arc::new(witness)));
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is no number: {value}")))
}

async fn run(seed: u64, operations: u64, witness: Arc<Witness>) {
    let store = Arc::new(Memory::new());
    // One client hands each lease over many times, the other releases it after every second holder.
    let clients = [LocalQueue::DEFAULT_MAX_HANDOVERS, 1].map(|handovers| {
        Arc::new(LocalQueue::new(Arc::new(store.client())).with_max_handovers(handovers))
    });
    let tasks: Vec<_> = (0..TASKS)
        .map(|n| {
            let worker = Worker {
                locks: Arc::clone(&clients[usize::from(n % 2 == 0)]),
                store: Arc::clone(&store),
                witness: Arc::clone(&witness),
                rng: Rng::with_seed(seed ^ (n << 32)),
            };
            tokio::spawn(worker.work(operations))
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    store.faults().clear();
    for client in &clients {
        assert!(client.shutdown(FORGOTTEN).await, "releases are under way");
        assert_eq!(client.live_keys(), 0);
    }
    assert_eq!(store.live_keys(), 0);
    witness.assert_awake();
}

/// The state that all tasks share.
#[derive(Default)]
struct Witness {
    /// Whether locks are broken, so that holders may overlap for a moment.
    breaking: bool,
    keys: [Arc<Section>; KEYS.len()],
    broken: AtomicUsize,
    granted: AtomicUsize,
    contended: AtomicUsize,
    disturbed: AtomicUsize,
    dropped: AtomicUsize,
    entered: AtomicUsize,
}

/// The critical section of one key.
#[derive(Default)]
struct Section {
    occupied: AtomicBool,
    last_token: AtomicU64,
}

impl Witness {
    /// For a run in which locks are broken, which must leave no waiter behind.
    fn of_breaking() -> Self {
        Self {
            breaking: true,
            ..Self::default()
        }
    }

    fn enter(&self, guard: &LockGuard) -> Inside {
        let key = guard.key().as_str();
        let at = KEYS.iter().position(|known| *known == key).unwrap();
        let section = &self.keys[at];
        if self.breaking {
            return Inside(Arc::clone(section));
        }
        let token = guard.fencing_token().unwrap().value();
        assert!(
            !section.occupied.swap(true, Ordering::SeqCst),
            "two holders of {key}"
        );
        let last = section.last_token.swap(token, Ordering::SeqCst);
        assert!(last < token, "{key}: token {token} after {last}");
        Inside(Arc::clone(section))
    }

    /// A run in which nothing went wrong shows nothing.
    fn assert_awake(&self) {
        let broken = self.broken.load(Ordering::Relaxed);
        assert_eq!(broken > 0, self.breaking, "{broken} locks were broken");
        let counted = [
            ("granted", &self.granted),
            ("contended", &self.contended),
            ("disturbed", &self.disturbed),
            ("dropped", &self.dropped),
            ("entered again", &self.entered),
        ];
        for (what, counter) in counted {
            println!("{what}: {counter:?}");
            assert_ne!(counter.load(Ordering::Relaxed), 0, "never {what}");
        }
    }
}

struct Inside(Arc<Section>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.occupied.store(false, Ordering::SeqCst);
    }
}

/// One task and what it does.
struct Worker {
    locks: Arc<LocalQueue>,
    store: Arc<Memory>,
    witness: Arc<Witness>,
    rng: Rng,
}

impl Worker {
    async fn work(mut self, operations: u64) {
        for _ in 0..operations {
            if self.rng.usize(..50) == 0 {
                self.disturb();
            }
            let key = KEYS[self.rng.usize(..KEYS.len())];
            if self.witness.breaking && self.rng.usize(..4) == 0 {
                self.break_lock(key).await;
            }
            let little = Wait::AtMost(self.micros(0..4_000));
            match self.rng.usize(..9) {
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
        let late = Fault::LateReply(self.micros(0..3_000));
        let faults = [
            late,
            Fault::Duplicated,
            Fault::LostReply,
            Fault::LostRequest,
        ];
        let request = [Request::Acquire, Request::Release][self.rng.usize(..2)];
        let fault = faults[self.rng.usize(..faults.len())];
        self.store.faults().plan(request, fault);
    }

    /// Breaks the lock, which notifies the holder, or ends its lease silently.
    async fn break_lock(&mut self, key: &str) {
        let key = LockKey::new(key).unwrap();
        match self.rng.bool() {
            true => drop(self.store.admin().unwrap().break_lock(&key, "stress").await),
            false => self.store.expire(&key),
        }
        self.witness.broken.fetch_add(1, Ordering::Relaxed);
    }

    /// Of two lengths of lease, which do not pass between each other.
    fn request(&mut self, key: &str) -> AcquireRequest {
        let request = AcquireRequest::new(LockKey::new(key).unwrap());
        let request = match self.rng.usize(..8) == 0 {
            true => request.with_ttl(Duration::from_secs(20)),
            false => request,
        };
        match self.rng.usize(..8) == 0 {
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
        let limit = self.micros(0..3_000);
        let request = self.request(key);
        let served = tokio::time::timeout(limit, self.locks.acquire(&request)).await;
        self.use_unless_dropped(key, served.ok()).await;
    }

    async fn give_up_after_polls(&mut self, key: &'static str) {
        let polls = self.rng.usize(..6);
        let request = self.request(key);
        let served = poll_times(self.locks.acquire(&request), polls, yield_now).await;
        self.use_unless_dropped(key, served).await;
    }

    async fn be_aborted(&mut self, key: &'static str) {
        let (locks, request) = (Arc::clone(&self.locks), self.request(key));
        let task = tokio::spawn(async move { locks.acquire(&request).await });
        match self.rng.bool() {
            true => tokio::time::sleep(self.micros(0..2_000)).await,
            false => yield_now().await,
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
        let (first, last) = if self.rng.bool() {
            (outer, inner)
        } else {
            (inner, outer)
        };
        drop(first.release().await);
        self.use_and_end(key, last).await;
    }

    async fn lock_two(&mut self, key: &'static str) {
        let other = KEYS[self.rng.usize(..KEYS.len())];
        let served = self.locks.lock_all([key, other]).await;
        let Some(both) = self.granted(served) else {
            return;
        };
        let inside = both.guards().iter().map(|guard| self.witness.enter(guard));
        let inside: Vec<_> = inside.collect();
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
        match self.rng.usize(..4) {
            0 => drop(guard),
            1 => drop(std::thread::spawn(move || drop(guard)).join()),
            2 => drop(poll_times(guard.release(), 1, yield_now).await),
            // A disturbed release is followed up in the background.
            _ => drop(guard.release().await),
        }
    }

    async fn end_both(&mut self, both: MultiGuard) {
        match self.rng.bool() {
            true => drop(both),
            false => drop(both.release().await),
        }
    }

    fn micros(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(self.rng.u64(range))
    }

    async fn linger(&mut self) {
        match self.rng.usize(..8) {
            0 => tokio::time::sleep(self.micros(0..1_500)).await,
            1 | 2 => yield_now().await,
            _ => {}
        }
    }
}
