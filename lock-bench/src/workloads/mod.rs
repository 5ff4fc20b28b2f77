//! What contenders do: the loops around a subject.

mod closed;
mod footprint;
mod layer;
mod open;
mod random;

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::{JoinError, JoinSet};

use crate::clock;
use crate::measure::{Log, Recorded, Span, Window};
use crate::subject::{Failure, Subject};

use self::closed::closed;
use self::open::open;

pub(crate) use self::closed::{Taken, take};
pub(crate) use self::footprint::HeldLocks;
pub(crate) use self::layer::serve_requests;
pub(crate) use self::random::Random;

/// What the contenders of one process do.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) task: Task,
    /// The numbers of those that this process has.
    pub(crate) contenders: Range<u32>,
    /// What the names of all keys begin with.
    pub(crate) prefix: String,
    pub(crate) hold: Duration,
    pub(crate) ttl: Duration,
    /// Spans that each of them keeps at most.
    pub(crate) most_spans: usize,
    pub(crate) seed: u64,
}

/// What a contender does.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Task {
    /// Asks again as soon as it has given back: for the one key of all, or for one of its own.
    Closed { has_own_key: bool },
    /// Asks so often per second for one of so many keys, whatever becomes of it.
    Open { rate: f64, keys: u32 },
}

impl Job {
    pub(crate) fn key(&self, number: u32) -> String {
        format!("{}/{number}", self.prefix)
    }
}

/// Has the contenders of this process do their job. Each ends soon after the end of the window,
/// whatever the subject does.
pub(crate) async fn contend<S: Subject>(
    subject: S,
    job: Job,
    window: Window,
) -> Result<Recorded, Failure> {
    let job = Arc::new(job);
    let meter = tokio::spawn(meter(window));
    let mut contenders = JoinSet::new();
    for contender in job.contenders.clone() {
        contenders.spawn(one(subject.clone(), Arc::clone(&job), contender, window));
    }
    let mut all = Recorded::default();
    while let Some(ended) = contenders.join_next().await {
        all.add(joined(ended)??);
    }
    all.processor_ns = joined(meter.await)?;
    Ok(all)
}

async fn one<S: Subject>(
    subject: S,
    job: Arc<Job>,
    contender: u32,
    window: Window,
) -> Result<Recorded, Failure> {
    let has_own_key = match job.task {
        Task::Closed { has_own_key } => has_own_key,
        Task::Open { rate, keys } => {
            return open(subject, job, contender, (rate, keys), window).await;
        }
    };
    let number = if has_own_key { contender } else { 0 };
    let key = subject.key(&job.key(number))?;
    let request = Span {
        key: number,
        contender,
        ..Span::default()
    };
    let mut log = Log::new(window, job.most_spans);
    clock::sleep_until(window.start).await;
    let until_end = closed(&subject, &key, &job, request, window, &mut log);
    let left = clock::until(last_call(window));
    if tokio::time::timeout(left, until_end).await.is_err() {
        log.push_failure(&stuck());
    }
    Ok(Recorded::of(contender, log))
}

/// Processor time that this process uses in the window.
pub(super) async fn meter(window: Window) -> u64 {
    clock::sleep_until(window.from).await;
    let before = clock::processor_time();
    clock::sleep_until(window.end).await;
    clock::processor_time() - before
}

/// When a contender is given up that did not come back from its subject.
pub(super) fn last_call(window: Window) -> u64 {
    window.end + GRACE
}

/// A release on a slow disk may take a while.
const GRACE: u64 = 5_000_000_000;

pub(super) fn stuck() -> Failure {
    Failure::new("stuck", "no answer 5 s after the end of the measurement")
}

/// What a task has returned; a panic is a failure of the run.
pub(super) fn joined<T>(ended: Result<T, JoinError>) -> Result<T, Failure> {
    ended.map_err(|error| match error.try_into_panic() {
        Ok(panic) => Failure::new("panic", format!("a contender panicked: {}", said(&*panic))),
        Err(_) => Failure::new("cancelled", "a contender was cancelled"),
    })
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}
