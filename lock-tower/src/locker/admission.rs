//! Counts and limits the requests that wait for or hold keys in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polylock_core::engine::isolated;
use polylock_core::layers::{HashedKey, KeyMap, KeyState};
use polylock_core::{LockKey, Mode};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Max numbers; see [`LockerBuilder`](crate::LockerBuilder).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionLimits {
    pub(crate) holders_per_key: usize,
    pub(crate) waiters_per_key: usize,
    pub(crate) waiters: usize,
    pub(crate) keys: usize,
}

/// The limit that a request would exceed, as text for the client.
type LimitReached = &'static str;

const KEYS: LimitReached = "too many locks are wanted at once";
const WAITERS: LimitReached = "too many requests wait";
const WAITERS_OF_KEY: LimitReached = "too many requests wait for the same lock";

/// Readers that acquire a key for this long, while none of them is granted, wait for a writer elsewhere.
const READER_GRACE: Duration = Duration::from_secs(1);

/// The requests for a key. As many requests as may hold it at once are not counted as waiters, even if
/// another process holds it: with no waiters allowed, a lock still serves one request at a time, and four
/// permits serve four.
///
/// Readers do not queue in this process. While they acquire, they count among all waiters like the others.
/// Many of them acquire at a time without waiting, so the limit of the key applies to them only when they
/// wait: this process holds the key exclusively, or a writer elsewhere has kept all of them out for
/// [`READER_GRACE`]. This process cannot see such a writer earlier.
#[derive(Clone, Copy, Default)]
struct KeyCount {
    asking: usize,
    reading: usize,
    holding: usize,
    /// Readers that hold the key.
    sharing: usize,
    /// When a reader was last granted, or the first of those that acquire the key came.
    readers_moved: Option<Instant>,
}

impl KeyCount {
    fn of(&mut self, state: SlotState) -> &mut usize {
        match state {
            SlotState::Asking => &mut self.asking,
            SlotState::Holding => &mut self.holding,
            SlotState::Reading => &mut self.reading,
            SlotState::Sharing => &mut self.sharing,
        }
    }

    /// Whether those that acquire the key in shared mode are kept out by a writer.
    fn readers_wait(self, now: Instant) -> bool {
        let since = self.readers_moved.filter(|_| self.reading > 0);
        self.holding > 0 || since.is_some_and(|since| now.duration_since(since) >= READER_GRACE)
    }

    /// How many of those that acquire the key are waiters.
    fn waiters_of(self, acquiring: usize, max_holders: usize) -> usize {
        let holding = self.holding + self.sharing;
        let beyond = (acquiring + holding).saturating_sub(max_holders);
        // More readers than `max_holders` can hold the key; they are not waiters.
        beyond.min(acquiring)
    }

    fn waiters(self, max_holders: usize) -> usize {
        self.waiters_of(self.asking + self.reading, max_holders)
    }
}

impl KeyState for KeyCount {
    fn is_idle(&self) -> bool {
        self.asking + self.reading + self.holding + self.sharing == 0
    }
}

/// The counts of all keys.
#[derive(Debug)]
pub(crate) struct AdmissionLimiter {
    limits: AdmissionLimits,
    waiters: AtomicUsize,
    keys: AtomicUsize,
    emptied: Notify,
    counts: KeyMap<KeyCount>,
}

impl AdmissionLimiter {
    pub(crate) fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            waiters: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            emptied: Notify::new(),
            counts: KeyMap::default(),
        })
    }

    /// Counts a request that acquires `key`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: &LockKey,
        mode: Mode,
    ) -> Result<AdmissionSlot, LimitReached> {
        let state = match mode {
            Mode::Shared => SlotState::Reading,
            _ => SlotState::Asking,
        };
        let max_holders = self.limits.holders_per_key;
        let key = self.counts.hashed(key.clone());
        let now = (state == SlotState::Reading).then(Instant::now);
        self.counts.change(&key, |count| {
            let mut after = *count;
            *after.of(state) += 1;
            if after.reading == 1 {
                after.readers_moved = now.or(after.readers_moved);
            }
            // Readers and the others are limited apart, so that neither fills the line of the key.
            let in_line = match now {
                Some(now) if !count.readers_wait(now) => 0,
                _ => after.waiters_of(*after.of(state), max_holders),
            };
            if in_line > self.limits.waiters_per_key {
                return Err(WAITERS_OF_KEY);
            }
            let waits = after.waiters(max_holders) > count.waiters(max_holders);
            if waits && !rises(&self.waiters, self.limits.waiters) {
                return Err(WAITERS);
            }
            if count.is_idle() && !rises(&self.keys, self.limits.keys) {
                if waits {
                    self.waiters.fetch_sub(1, Ordering::Relaxed);
                }
                return Err(KEYS);
            }
            *count = after;
            Ok(())
        })?;
        Ok(AdmissionSlot {
            admission: Arc::clone(self),
            key,
            state,
        })
    }

    /// Waits until a key is unused.
    pub(crate) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.live_keys() == 0 {
                return;
            }
            isolated(emptied).await;
        }
    }

    pub(crate) fn live_keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    pub(crate) fn waiters(&self) -> usize {
        self.waiters.load(Ordering::Relaxed)
    }

    /// Changes the counts of a key without adding waiters; only `enter` adds them.
    fn decrement(&self, key: &HashedKey, change: impl FnOnce(&mut KeyCount)) {
        let max_holders = self.limits.holders_per_key;
        let is_emptied = self.counts.change(key, |count| {
            let before = count.waiters(max_holders);
            change(count);
            // The granted request need not be the first one, so none of them is a waiter by itself.
            let fewer = before - count.waiters(max_holders);
            self.waiters.fetch_sub(fewer, Ordering::Relaxed);
            count.is_idle() && self.keys.fetch_sub(1, Ordering::Relaxed) == 1
        });
        if is_emptied {
            // Outside of the mutex, since a waker may enter. `isolated` catches one that panics.
            self.emptied.notify_waiters();
        }
    }
}

/// Adds one to `number` unless it is at its bound.
fn rises(number: &AtomicUsize, bound: usize) -> bool {
    number
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            (now < bound).then_some(now + 1)
        })
        .is_ok()
}

/// One request that waits for or holds a key, until it is dropped.
pub(crate) struct AdmissionSlot {
    admission: Arc<AdmissionLimiter>,
    key: HashedKey,
    state: SlotState,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum SlotState {
    Asking,
    Holding,
    Reading,
    Sharing,
}

impl AdmissionSlot {
    /// The request has the lock.
    pub(crate) fn granted(&mut self) {
        let before = self.state;
        self.state = match before {
            SlotState::Reading | SlotState::Sharing => SlotState::Sharing,
            SlotState::Asking | SlotState::Holding => SlotState::Holding,
        };
        let moved = (self.state == SlotState::Sharing).then(Instant::now);
        self.admission.decrement(&self.key, |count| {
            *count.of(before) -= 1;
            *count.of(self.state) += 1;
            count.readers_moved = moved.or(count.readers_moved);
        });
    }
}

impl Drop for AdmissionSlot {
    fn drop(&mut self) {
        self.admission
            .decrement(&self.key, |count| *count.of(self.state) -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::pin::{Pin, pin};
    use std::sync::mpsc;
    use std::task::{Context, Wake, Waker};
    use std::thread;

    use super::*;

    /// A limiter that serves one key.
    fn limited(
        holders: usize,
        waiters_per_key: usize,
        waiters: usize,
    ) -> (Arc<AdmissionLimiter>, LockKey) {
        let limits = AdmissionLimits {
            holders_per_key: holders,
            waiters_per_key,
            waiters,
            keys: 1,
        };
        (AdmissionLimiter::new(limits), LockKey::new("k").unwrap())
    }

    #[test]
    fn waiters_are_counted_in_any_order_of_grants() {
        let (admission, key) = limited(1, 2, 2);
        let enter = || admission.enter(&key, Mode::Exclusive);
        let (first, mut second) = (enter().unwrap(), enter().unwrap());
        assert_eq!(admission.waiters(), 1);
        second.granted();
        assert_eq!(admission.waiters(), 1, "the first one waits");
        let mut third = enter().unwrap();
        assert_eq!(enter().err(), Some(WAITERS_OF_KEY));
        drop(second);
        assert_eq!(admission.waiters(), 1, "one of two does not count");
        drop(first);
        assert_eq!(admission.waiters(), 0);
        third.granted();
        drop(third);
        assert_eq!((admission.waiters(), admission.live_keys()), (0, 0));
    }

    #[test]
    fn requests_within_the_permits_are_no_waiters_in_any_order_of_grants() {
        let limit = NonZeroU32::new(2).unwrap();
        let (admission, key) = limited(2, 1, 1);
        let enter = || admission.enter(&key, Mode::Permit { limit });
        let (first, mut second, mut third) = (enter().unwrap(), enter().unwrap(), enter().unwrap());
        assert_eq!(admission.waiters(), 1);
        assert_eq!(enter().err(), Some(WAITERS_OF_KEY));
        second.granted();
        third.granted();
        assert_eq!(admission.waiters(), 1, "the first one waits");
        drop(second);
        assert_eq!(admission.waiters(), 0, "the first one may have a permit");
        let fourth = enter().unwrap();
        assert_eq!(admission.waiters(), 1);
        drop((first, third, fourth));
        assert_eq!((admission.waiters(), admission.live_keys()), (0, 0));
    }

    #[test]
    fn readers_do_not_stand_in_line() {
        let (admission, key) = limited(1, 1, 3);
        let mut readers: Vec<_> = (0..4)
            .map(|_| admission.enter(&key, Mode::Shared).unwrap())
            .collect();
        assert_eq!(admission.waiters(), 3, "the first one is none");
        assert_eq!(admission.enter(&key, Mode::Shared).err(), Some(WAITERS));
        readers.iter_mut().for_each(AdmissionSlot::granted);
        assert_eq!(admission.waiters(), 0);
        let writer = admission.enter(&key, Mode::Exclusive).unwrap();
        assert_eq!(admission.waiters(), 1, "it waits for the readers");
        drop(readers);
        assert_eq!(admission.waiters(), 0);
        drop(writer);
        assert_eq!((admission.waiters(), admission.live_keys()), (0, 0));
    }

    #[test]
    fn readers_that_wait_for_a_writer_of_this_process_have_the_limit_of_their_key() {
        let (admission, key) = limited(1, 2, 100);
        let enter = |mode| admission.enter(&key, mode);
        let mut writer = enter(Mode::Exclusive).unwrap();
        writer.granted();
        let readers = [enter(Mode::Shared).unwrap(), enter(Mode::Shared).unwrap()];
        let refused = enter(Mode::Shared).err();
        assert_eq!(refused, Some(WAITERS_OF_KEY));
        let other = enter(Mode::Exclusive).expect("readers do not fill the line of the others");
        drop((writer, readers, other));
        assert_eq!((admission.waiters(), admission.live_keys()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn readers_that_are_not_granted_have_the_limit_of_their_key() {
        let (admission, key) = limited(1, 2, 100);
        let enter = || admission.enter(&key, Mode::Shared);
        let mut readers: Vec<_> = (0..9).map(|_| enter().unwrap()).collect();
        tokio::time::advance(READER_GRACE).await;
        assert_eq!(enter().err(), Some(WAITERS_OF_KEY));
        readers[0].granted();
        readers.push(enter().expect("one of them was granted"));
        tokio::time::advance(READER_GRACE).await;
        assert_eq!(enter().err(), Some(WAITERS_OF_KEY));
        readers.clear();
        let _reader = enter().expect("nobody waits");
        assert_eq!((admission.waiters(), admission.live_keys()), (0, 1));
    }

    /// What a task does when it is woken.
    struct OnWake<F>(F);

    impl<F: Fn() + Send + Sync> Wake for OnWake<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    /// Polls `emptied` once with a waker that calls `on_wake`.
    fn begin_to_wait(
        emptied: Pin<&mut impl Future<Output = ()>>,
        on_wake: impl Fn() + Send + Sync + 'static,
    ) {
        let waker = Waker::from(Arc::new(OnWake(on_wake)));
        assert!(emptied.poll(&mut Context::from_waker(&waker)).is_pending());
    }

    #[test]
    fn a_task_that_waits_for_the_end_may_enter_as_it_is_woken() {
        let (admission, key) = limited(1, 0, 0);
        let slot = admission.enter(&key, Mode::Exclusive).unwrap();
        let mut emptied = pin!(admission.emptied());
        let (woken, wakes) = mpsc::channel();
        let other = Arc::clone(&admission);
        begin_to_wait(emptied.as_mut(), move || {
            let entered = other.enter(&key, Mode::Exclusive);
            woken.send(entered.is_ok()).unwrap();
        });
        thread::spawn(move || drop(slot));
        assert_eq!(wakes.recv_timeout(Duration::from_secs(20)), Ok(true));
    }

    #[test]
    fn a_task_that_cannot_be_woken_costs_no_slot_and_delays_no_other() {
        let (admission, key) = limited(1, 0, 0);
        let slot = admission.enter(&key, Mode::Exclusive).unwrap();
        let (mut first, mut second) = (pin!(admission.emptied()), pin!(admission.emptied()));
        begin_to_wait(first.as_mut(), || panic!("the runtime of the task is gone"));
        let (woken, wakes) = mpsc::channel();
        begin_to_wait(second.as_mut(), move || woken.send(()).unwrap());
        drop(slot);
        assert_eq!(wakes.try_recv(), Ok(()));
        assert!(admission.enter(&key, Mode::Exclusive).is_ok());
    }
}
