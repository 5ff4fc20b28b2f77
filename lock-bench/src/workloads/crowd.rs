use std::any::Any;
use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};

use super::closed::closed;
use super::open::open;
use super::{Job, Task};
use crate::clock;
use crate::measure::{Log, Recorded, Span, Window};
use crate::subject::{Failure, Subject};

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
