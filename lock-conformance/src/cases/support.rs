//! Tools of the cases.

use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use polylock_core::layers::{Event, EventKind, Observe, Observer};
use polylock_core::{
    AcquireRequest, DistributedLock, Error, ErrorKind, LockGuard, Released, Result,
};
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::Case;
use super::case::{LATE, SOON};
use crate::history::{Recorded, Recorder};

/// What became of a future that was polled a number of times.
#[derive(Debug)]
pub(super) enum Polled<T> {
    /// It was dropped after that many polls.
    Dropped,
    /// It was ready.
    Ready(T),
    /// It was dropped earlier, because nothing woke it.
    Stuck,
}

/// When a future is dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum When {
    /// Right after the last poll: what it sent is under way.
    AtOnce,
    /// Once something woke it after that: the answer has arrived, and is unread.
    Woken,
}

/// Polls `future` at most `times`, each time when it wakes, and drops it then; earlier, if nothing
/// wakes it for as long as `idle`.
pub(super) async fn polled<F: Future>(
    times: usize,
    when: When,
    idle: Duration,
    future: F,
) -> Polled<F::Output> {
    let bell = Arc::new(Bell(Notify::new()));
    let waker = Waker::from(Arc::clone(&bell));
    let mut future = Box::pin(future);
    for n in 1..=times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Polled::Ready(output);
        }
        let last = n == times && when == When::AtOnce;
        if !last && tokio::time::timeout(idle, bell.0.notified()).await.is_err() {
            return Polled::Stuck;
        }
    }
    Polled::Dropped
}

/// A waker that can be waited for.
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Renews a held lock; returns when the answered request was sent. On a very busy machine a request may
/// have no reply in its time, which is short for a short ttl: it is repeated while the lock is held.
#[track_caller]
pub(super) fn renewed(guard: &LockGuard) -> impl Future<Output = Instant> {
    repeated(|| guard.renew())
}

/// The same for an extension to `ttl`.
#[track_caller]
pub(super) fn extended(guard: &LockGuard, ttl: Duration) -> impl Future<Output = Instant> {
    repeated(move || guard.renew_for(ttl))
}

#[track_caller]
fn repeated<F: Future<Output = Result<()>>>(
    renew: impl Fn() -> F,
) -> impl Future<Output = Instant> {
    let place = Location::caller();
    async move {
        loop {
            let sent = Instant::now();
            match renew().await {
                Ok(()) => return sent,
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(error) => panic!("a held lock is not renewed at {place}: {error:?}"),
            }
        }
    }
}

/// Polls a future that depends on the store alone, as [`polled`] does. Returns its output, or `None`
/// if it was dropped. Panics if nothing wakes it within `SOON`, or if `times` exceeds `MAX_POLLS`.
#[track_caller]
pub(super) fn answered<F: Future>(
    times: usize,
    when: When,
    future: F,
) -> impl Future<Output = Option<F::Output>> {
    assert!(times <= MAX_POLLS, "no answer after {MAX_POLLS} polls");
    let place = Location::caller();
    async move {
        match polled(times, when, SOON, future).await {
            Polled::Dropped => None,
            Polled::Ready(output) => Some(output),
            Polled::Stuck => panic!("no answer at {place}"),
        }
    }
}

/// More polls than any backend needs for one request.
const MAX_POLLS: usize = 60;

/// Fails with the place of the caller if an answer is an error.
#[track_caller]
fn expect<T>(refusal: &'static str) -> impl FnOnce(Result<T>) -> T {
    let place = Location::caller();
    move |answer| answer.unwrap_or_else(|error| panic!("{refusal} at {place}: {error}"))
}

/// Acquires, and fails if the lock is not granted.
#[track_caller]
pub(super) fn granted<'a>(
    locks: &'a dyn DistributedLock,
    request: &'a AcquireRequest,
) -> impl Future<Output = LockGuard> + Send + 'a {
    let granted = expect("not granted");
    async move { granted(locks.acquire(request).await) }
}

/// The same with a record of it.
#[track_caller]
pub(super) fn noted<'a>(
    recorder: &'a Recorder,
    locks: &'a dyn DistributedLock,
    request: &'a AcquireRequest,
) -> impl Future<Output = Recorded> + Send + 'a {
    let granted = expect("not granted");
    async move { granted(recorder.acquire(locks, request).await) }
}

/// Acquires, and fails unless the answer is that another one holds the lock.
#[track_caller]
pub(super) fn contended<'a>(
    locks: &'a dyn DistributedLock,
    request: &'a AcquireRequest,
) -> impl Future<Output = Error> + Send + 'a {
    let place = Location::caller();
    async move {
        let Err(error) = locks.acquire(request).await else {
            panic!("two hold the lock, at {place}");
        };
        assert_eq!(error.kind(), ErrorKind::Contended, "at {place}: {error}");
        error
    }
}

/// Waits for a lock that is held; returns the error, which is contention, and how long the wait took. A busy
/// server may not have answered within a short wait, which is repeated then.
pub(super) async fn timed_out<T: Debug>(
    locks: &dyn DistributedLock,
    wait: impl AsyncFn() -> Result<T>,
) -> (Error, Duration) {
    let deadline = Instant::now() + LATE;
    loop {
        let began = Instant::now();
        let answer = wait().await;
        let waited = began.elapsed();
        let error = answer.expect_err("two hold the lock");
        if error.kind() != ErrorKind::Unavailable || began > deadline {
            assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
            return (error, waited);
        }
        assert!(locks.shutdown(SOON).await, "background work does not end");
    }
}

/// The error of a request that reached no server.
#[track_caller]
pub(super) fn unavailable<T: Debug>(answer: Result<T>) -> Error {
    let error = answer.expect_err("no server has answered");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    error
}

/// The guard of a task that acquires.
#[track_caller]
pub(super) fn joined(
    task: JoinHandle<Result<LockGuard>>,
) -> impl Future<Output = LockGuard> + Send {
    let granted = expect("not granted");
    async move { granted(task.await.expect("no panic")) }
}

/// The same of a task whose turn it is.
#[track_caller]
pub(super) fn served(
    task: JoinHandle<Result<LockGuard>>,
) -> impl Future<Output = LockGuard> + Send {
    let (place, joined) = (Location::caller(), joined(task));
    async move {
        let served = tokio::time::timeout(SOON, joined).await;
        served.unwrap_or_else(|_| panic!("not served at {place}"))
    }
}

/// Releases locks that are held.
#[track_caller]
pub(super) fn release_all(guards: impl IntoIterator<Item = LockGuard>) -> impl Future<Output = ()> {
    let place = Location::caller();
    async move {
        for guard in guards {
            let answer = guard.release().await;
            answer.unwrap_or_else(|error| panic!("not released at {place}: {error}"));
        }
    }
}

/// What the release of a guard found.
#[track_caller]
pub(super) fn released(guard: LockGuard) -> impl Future<Output = Released> + Send {
    let released = expect("not released");
    async move { released(guard.release().await) }
}

/// Waits for a condition, and fails if it does not come true in time.
pub(super) async fn eventually<F>(what: &str, mut condition: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let deadline = Instant::now() + SOON;
    while !condition().await {
        assert!(
            Instant::now() < deadline,
            "it does not come true that {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs `work` on a thread and a runtime of its own, as another process would.
pub(super) fn on_a_thread<F>(
    work: impl FnOnce() -> F + Send + 'static,
) -> oneshot::Receiver<F::Output>
where
    F: Future<Output: Send + 'static>,
{
    let (done, output) = oneshot::channel();
    std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder
            .enable_all()
            .build()
            .expect("a runtime can be built");
        let result = runtime.block_on(work());
        drop(runtime);
        // The waiting task may have failed by now.
        drop(done.send(result));
    });
    output
}

/// Counts acquisitions.
#[derive(Debug, Default)]
pub(super) struct Spy {
    under_way: AtomicUsize,
    most: AtomicUsize,
    calls: AtomicUsize,
}

impl Spy {
    /// Counts those of a client, which is returned as well.
    pub(super) fn on(client: Arc<dyn DistributedLock>) -> (Arc<Self>, Arc<dyn DistributedLock>) {
        let spy = Arc::<Self>::default();
        let client = Observe::new(client).with_observer(Arc::clone(&spy) as Arc<dyn Observer>);
        (spy, Arc::new(client))
    }

    /// How many acquisitions are under way.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// The max number under way at a time.
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// How many acquisitions there were.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Observer for Spy {
    fn event(&self, event: &Event<'_>) {
        match event.kind {
            EventKind::Requested => {
                self.calls.fetch_add(1, Ordering::SeqCst);
                let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(now, Ordering::SeqCst);
            }
            EventKind::Acquired { .. } | EventKind::Cancelled { .. } | EventKind::Failed { .. } => {
                self.under_way.fetch_sub(1, Ordering::SeqCst);
            }
            _ => {}
        }
    }
}

/// Runs tasks on each of several clients, all at once, to their ends.
pub(super) async fn crowd<F>(
    case: &Case,
    clients: usize,
    tasks_each: usize,
    work: impl Fn(Arc<dyn DistributedLock>, usize) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for n in 0..clients {
        let client = case.client().await;
        for m in 0..tasks_each {
            tasks.spawn(work(Arc::clone(&client), n * tasks_each + m));
        }
    }
    tasks.join_all().await;
}

/// Polls `future` once, so that it stands in line when this returns, and lets a task go on with it.
pub(super) async fn started<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let mut future = Box::pin(future);
    match std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        Poll::Ready(output) => tokio::spawn(std::future::ready(output)),
        Poll::Pending => tokio::spawn(future),
    }
}
