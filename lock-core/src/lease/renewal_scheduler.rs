//! Renews all leases of the process in batches, and fires deadlines even while a renewal hangs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::renewer::{RenewalRequest, Renewer, renew};
use crate::engine::{Clock, Entropy, Moment, Mutex, Spawn, catch_panic};
use crate::guard::HeldLease;

/// Holds every live lock of the process, ordered by the moment at which it is due.
pub(crate) struct RenewalScheduler {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) spawn: Arc<dyn Spawn>,
    schedule: Mutex<Schedule>,
    next_id: AtomicU64,
    started: AtomicBool,
    wake: Notify,
}

#[derive(Default)]
struct Schedule {
    by_due: BTreeMap<(Moment, u64), Arc<HeldLease>>,
    /// When the loop looks next; an entry before that has to wake it. `None` while it is awake.
    next_wakeup: Option<Moment>,
    /// Whether an entry has come since the loop looked last.
    is_used: bool,
}

/// Where a lock stands in the schedule; changed under its mutex only.
#[derive(Debug)]
pub(crate) struct Slot {
    id: u64,
    due: AtomicU64,
}

/// Longest sleep while any lock is held. Timers stand still on a suspended machine while leases
/// expire, so the loop reads the clock this often.
pub(crate) const TICK: Duration = Duration::from_secs(1);

impl Slot {
    /// A number in `0.0..1.0` that spreads the renewals of locks which were taken together: the
    /// golden-ratio sequence fills the range evenly, whatever part of it is live.
    pub(crate) fn jitter(&self) -> f64 {
        let spread = self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        f64::from(u32::try_from(spread).unwrap_or(0)) / 4_294_967_296.0
    }
}

impl RenewalScheduler {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        spawn: Arc<dyn Spawn>,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            entropy,
            spawn,
            schedule: Mutex::default(),
            next_id: AtomicU64::new(0),
            started: AtomicBool::new(false),
            wake: Notify::new(),
        })
    }

    pub(crate) fn slot(&self) -> Slot {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Slot {
            id,
            due: AtomicU64::new(u64::MAX),
        }
    }

    /// Schedules `hold` for its due time, in place of its former one.
    pub(crate) fn schedule(self: &Arc<Self>, hold: Arc<HeldLease>) {
        let slot = hold.slot();
        let mut schedule = self.schedule.lock();
        let replaced = schedule.take(slot);
        let mut wakes = false;
        // Read under the mutex: the later of two calls sees both changes, and a lock that was given up
        // meanwhile is not scheduled again.
        if let Some(due) = hold.due() {
            slot.due.store(due.as_nanos(), Ordering::Relaxed);
            let key = (due, slot.id);
            schedule.by_due.insert(key, hold);
            schedule.is_used = true;
            // The timer of a loop that should be awake stood still on a suspended machine.
            let is_late = |at: Moment| at <= self.clock.now();
            let next_wakeup = schedule.next_wakeup;
            wakes = next_wakeup.is_some_and(|at| due < at || is_late(at));
        }
        drop(schedule);
        drop(replaced);
        if wakes {
            self.wake.notify_one();
        }
        // A load first: a swap takes the cache line from the other threads.
        if !self.started.load(Ordering::Relaxed) && !self.started.swap(true, Ordering::Relaxed) {
            self.spawn.spawn(Box::pin(Arc::clone(self).run()));
        }
    }

    /// Forgets a lock that is over.
    pub(crate) fn remove(&self, slot: &Slot) {
        let removed = self.schedule.lock().take(slot);
        // Dropping the last reference may close a connection, which must not happen under the
        // mutex.
        drop(removed);
    }

    async fn run(self: Arc<Self>) {
        loop {
            let now = self.clock.now();
            let due = self.schedule.lock().take_due(now);
            self.process_due(due, now);
            let pause = self.schedule.lock().sleep_from(self.clock.now());
            match pause {
                Some(pause) => drop(tokio::time::timeout(pause, self.wake.notified()).await),
                None => self.wake.notified().await,
            }
        }
    }

    /// Fires what is over and starts the renewals that are due, one task for each server and range
    /// of timeouts.
    fn process_due(self: &Arc<Self>, due: Vec<Arc<HeldLease>>, now: Moment) {
        let mut batches: Vec<RenewalBatch> = Vec::new();
        for hold in due {
            if let Some((hold, request, renewer)) = process(hold, now, now) {
                let joined = batches.iter_mut().find(|batch| {
                    Arc::ptr_eq(&batch.renewer, &renewer) && batch.has_timeout_like(&hold)
                });
                match joined {
                    Some(batch) => batch.push(hold, request),
                    None => batches.push(RenewalBatch::new(renewer, hold, request)),
                }
            }
        }
        for mut batch in batches {
            let horizon = now + batch.batch_window;
            let joining = self.schedule.lock().take_batch(&batch, horizon);
            for hold in joining {
                if let Some((hold, request, _)) = process(hold, now, horizon) {
                    batch.push(hold, request);
                }
            }
            self.spawn.spawn(Box::pin(batch.run(Arc::clone(self))));
        }
    }
}

impl Schedule {
    fn take(&mut self, slot: &Slot) -> Option<Arc<HeldLease>> {
        let due = Moment::from_nanos(slot.due.load(Ordering::Relaxed));
        self.by_due.remove(&(due, slot.id))
    }

    /// Takes what wants attention at `now`.
    fn take_due(&mut self, now: Moment) -> Vec<Arc<HeldLease>> {
        self.next_wakeup = None;
        let later = self.by_due.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.by_due, later)
            .into_values()
            .collect()
    }

    /// Takes the locks that can join the batch and whose renewal is due by `horizon`.
    fn take_batch(&mut self, batch: &RenewalBatch, horizon: Moment) -> Vec<Arc<HeldLease>> {
        let near = self.by_due.range(..=(horizon, u64::MAX));
        let keys: Vec<_> = near
            .filter(|(_, hold)| hold.is_renewed_by(&batch.renewer, horizon))
            .filter(|(_, hold)| batch.has_timeout_like(hold))
            .map(|(key, _)| *key)
            .collect();
        keys.into_iter()
            .filter_map(|key| self.by_due.remove(&key))
            .collect()
    }

    /// How long to sleep, and notes until when.
    fn sleep_from(&mut self, now: Moment) -> Option<Duration> {
        let first = self.by_due.first_key_value().map(|((due, _), _)| *due);
        let is_used = std::mem::take(&mut self.is_used);
        // After the last entry the loop looks once more. An entry that comes before that need not wake it.
        let pause = match first {
            Some(due) => Some(due.since(now).min(TICK)),
            None => is_used.then_some(TICK),
        };
        self.next_wakeup = Some(pause.map_or(Moment::NEVER, |pause| now + pause));
        pause
    }
}

/// Renewals that travel together.
struct RenewalBatch {
    renewer: Arc<dyn Renewer>,
    holds: Vec<Arc<HeldLease>>,
    requests: Vec<RenewalRequest>,
    /// The timeout of the first renewal.
    first_timeout: Duration,
    /// The shortest timeout of all.
    timeout: Duration,
    batch_window: Duration,
}

impl RenewalBatch {
    fn new(renewer: Arc<dyn Renewer>, hold: Arc<HeldLease>, request: RenewalRequest) -> Self {
        let (timeout, batch_window) = (hold.attempt_timeout(), hold.timing.batch_window());
        Self {
            renewer,
            holds: vec![hold],
            requests: vec![request],
            first_timeout: timeout,
            timeout,
            batch_window,
        }
    }

    /// Whether the renewal of a lock has about the timeout of the first one. The shortest timeout applies to
    /// the whole batch: that of a far shorter lease may be too short for any reply of a slow server.
    fn has_timeout_like(&self, hold: &HeldLease) -> bool {
        let (first, other) = (self.first_timeout, hold.attempt_timeout());
        first <= other * 2 && other <= first * 2
    }

    fn push(&mut self, hold: Arc<HeldLease>, request: RenewalRequest) {
        self.timeout = self.timeout.min(hold.attempt_timeout());
        self.batch_window = self.batch_window.max(hold.timing.batch_window());
        self.holds.push(hold);
        self.requests.push(request);
    }

    async fn run(self, scheduler: Arc<RenewalScheduler>) {
        // Here, and not when they were due: this task may begin late, and a renewal after the release would
        // extend the lock beyond its min hold.
        let due = self.holds.into_iter().zip(self.requests);
        let (holds, requests): (Vec<_>, Vec<_>) = due
            .filter_map(|(hold, request)| match hold.begin_renewal() {
                true => Some((hold, request)),
                false => discard(hold),
            })
            .unzip();
        if requests.is_empty() {
            return;
        }
        // The deadline counts from before the request leaves.
        let sent = scheduler.clock.now();
        let answers = renew(&*self.renewer, &requests, self.timeout).await;
        for (hold, answer) in holds.into_iter().zip(answers) {
            let now = scheduler.clock.now();
            guarded(&hold, now, || {
                hold.renewed_for(hold.timing.ttl(), sent, answer);
                None::<()>
            });
            discard::<()>(hold);
        }
    }
}

/// Fires what is due; the renewal to send, if that is due by `horizon`.
fn process(
    hold: Arc<HeldLease>,
    now: Moment,
    horizon: Moment,
) -> Option<(Arc<HeldLease>, RenewalRequest, Arc<dyn Renewer>)> {
    match guarded(&hold, now, || hold.process_due(now, horizon)) {
        Some((request, renewer)) => Some((hold, request, renewer)),
        None => discard(hold),
    }
}

/// Drops a lock after it was processed. This may be the last reference, and the destructor of its lease or its
/// observer may panic; that must not cost the renewals of the others.
fn discard<T>(hold: Arc<HeldLease>) -> Option<T> {
    let _panicked = catch_panic(|| drop(hold));
    None
}

/// Processes one lock. Calls on its behalf may panic, such as wakers of tasks; that must not cost
/// the renewals of the others.
fn guarded<T>(hold: &Arc<HeldLease>, now: Moment, act: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_panic(act).unwrap_or_else(|| {
        hold.try_later(now);
        None
    })
}

#[cfg(all(test, not(polylock_loom)))]
mod tests;
