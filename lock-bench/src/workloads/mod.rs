//! What contenders do: the loops around a subject.

mod closed_loop;
mod footprint;
mod http;
mod layer;
mod open_loop;

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::{JoinError, JoinSet};

use crate::clock;
use crate::measure::{HoldSpan, RecordedSpans, SpanLog, Window};
use crate::subject::{Failure, Subject};

use self::closed_loop::closed;
use self::open_loop::open;

pub(crate) use self::closed_loop::{SubjectGuard, acquire};
pub(crate) use self::footprint::HeldLocks;
pub(crate) use self::layer::{Transport, serve_requests};

/// What the contenders of one process do.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ContenderJob {
    /// The numbers of those that this process has.
    pub(crate) contenders: Range<u32>,
    /// Number of keys. Closed loop: 1 is shared by all contenders, more give each its own. Open loop: each
    /// request picks one.
    pub(crate) keys: u32,
    /// Requests per second of each contender (open loop); `None`: the next request follows the release
    /// (closed loop).
    pub(crate) rate: Option<f64>,
    /// What the names of all keys begin with.
    pub(crate) prefix: String,
    pub(crate) hold: Duration,
    pub(crate) ttl: Duration,
    /// Spans that each of them keeps at most.
    pub(crate) max_spans: usize,
    pub(crate) seed: u64,
}

impl ContenderJob {
    pub(crate) fn key(&self, number: u32) -> String {
        format!("{}/{number}", self.prefix)
    }
}

/// Has the contenders of this process do their job. Each ends soon after the end of the window,
/// whatever the subject does.
pub(crate) async fn contend<S: Subject>(
    subject: S,
    job: ContenderJob,
    window: Window,
) -> Result<RecordedSpans, Failure> {
    let job = Arc::new(job);
    let numbers = job.contenders.clone();
    let contenders = numbers.map(|number| one(subject.clone(), Arc::clone(&job), number, window));
    together(contenders, window).await
}

/// Runs contenders at the same time, and adds up what they recorded.
async fn together<F>(
    contenders: impl Iterator<Item = F>,
    window: Window,
) -> Result<RecordedSpans, Failure>
where
    F: Future<Output = Result<RecordedSpans, Failure>> + Send + 'static,
{
    let meter = tokio::spawn(meter(window));
    let mut contenders: JoinSet<_> = contenders.collect();
    let mut all = RecordedSpans::default();
    while let Some(ended) = contenders.join_next().await {
        all.add(joined(ended)??);
    }
    all.processor_ns = joined(meter.await)?;
    Ok(all)
}

async fn one<S: Subject>(
    subject: S,
    job: Arc<ContenderJob>,
    contender: u32,
    window: Window,
) -> Result<RecordedSpans, Failure> {
    if let Some(rate) = job.rate {
        return open(subject, job, contender, rate, window).await;
    }
    let number = if job.keys > 1 { contender } else { 0 };
    let key = subject.key(&job.key(number), job.ttl)?;
    let request = HoldSpan {
        key: number,
        contender,
        ..HoldSpan::default()
    };
    let mut log = SpanLog::new(window, job.max_spans);
    clock::sleep_until(window.start).await;
    let until_end = closed(&subject, &key, &job, request, window, &mut log);
    if before_last_call(window, until_end).await.is_none() {
        log.push_failure(&stuck());
    }
    Ok(RecordedSpans::of(contender, log))
}

/// Processor time that this process uses in the window.
async fn meter(window: Window) -> u64 {
    clock::sleep_until(window.from).await;
    let before = clock::processor_time();
    clock::sleep_until(window.end).await;
    clock::processor_time() - before
}

/// Gives up soon after the end of the window.
async fn before_last_call<T>(window: Window, work: impl Future<Output = T>) -> Option<T> {
    let left = clock::until(window.end + GRACE);
    tokio::time::timeout(left, work).await.ok()
}

/// In nanoseconds. A release on a slow disk may take a while.
const GRACE: u64 = 5_000_000_000;

fn stuck() -> Failure {
    Failure::new("stuck", "no answer 5 s after the end of the measurement")
}

/// What a task has returned; a panic is a failure of the run.
fn joined<T>(ended: Result<T, JoinError>) -> Result<T, Failure> {
    ended.map_err(|error| match error.try_into_panic() {
        Ok(panic) => {
            let text = format!("a contender panicked: {}", message(&*panic));
            Failure::new("panic", text)
        }
        Err(_) => Failure::new("cancelled", "a contender was cancelled"),
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}
