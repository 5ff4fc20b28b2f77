use std::sync::Arc;
use std::thread;

use fastrand::Rng;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::closed_loop::{RequestResult, turn};
use super::{ContenderJob, before_last_call, joined, stuck};
use crate::clock;
use crate::measure::{HoldSpan, RecordedSpans, SpanLog, Window};
use crate::subject::{Failure, Subject};

/// Requests a lock whenever one is due, whatever becomes of those before.
pub(super) async fn open<S: Subject>(
    subject: S,
    job: Arc<ContenderJob>,
    contender: u32,
    rate: f64,
    window: Window,
) -> Result<RecordedSpans, Failure> {
    let prepared = (0..job.keys).map(|number| subject.key(&job.key(number), job.ttl));
    let prepared: Arc<[S::Key]> = prepared.collect::<Result<Vec<_>, _>>()?.into();
    let mut log = SpanLog::new(window, job.max_spans);
    let mut random = Rng::with_seed(job.seed ^ (u64::from(contender) << 32));
    let popularity = popularity(job.keys);
    let mut arrivals = arrivals(rate, random.fork(), window);
    let mut running = JoinSet::new();
    let (mut is_overrun, mut is_stuck) = (false, false);
    loop {
        let requested = tokio::select! {
            requested = arrivals.recv() => requested,
            Some(ended) = running.join_next() => {
                is_stuck |= write(joined(ended)?, &mut log);
                continue;
            }
        };
        let Some(requested) = requested else { break };
        let share = random.f64();
        let key = popularity.partition_point(|up_to| *up_to <= share);
        let request = HoldSpan {
            key: u32::try_from(key).unwrap_or(u32::MAX),
            contender,
            requested,
            ..HoldSpan::default()
        };
        if running.len() >= MAX_RUNNING {
            is_overrun = true;
            log.push_unserved(request.key, requested);
            continue;
        }
        let (subject, prepared, job) = (subject.clone(), Arc::clone(&prepared), Arc::clone(&job));
        running.spawn(async move {
            let turn = turn(&subject, &prepared[key], &job, request, window);
            (request, before_last_call(window, turn).await)
        });
    }
    while let Some(ended) = running.join_next().await {
        is_stuck |= write(joined(ended)?, &mut log);
    }
    if is_stuck {
        log.push_failure(&stuck());
    }
    Ok(RecordedSpans {
        is_overrun,
        ..RecordedSpans::of(contender, log)
    })
}

/// Writes down what became of a request, and returns whether it was given up.
fn write((request, turn): (HoldSpan, Option<RequestResult>), log: &mut SpanLog) -> bool {
    match &turn {
        Some(turn) => turn.write(request, log),
        None => log.push_unserved(request.key, request.requested),
    }
    turn.is_none()
}

/// The share of all requests for a key or one before it, of a Zipf distribution: the first key is
/// wanted twice as often as the second, three times as often as the third.
fn popularity(keys: u32) -> Vec<f64> {
    let weights = || (1..=keys).map(|rank| 1.0 / f64::from(rank));
    let (total, mut sum) = (weights().sum::<f64>(), 0.0);
    let up_to = weights().map(|weight| {
        sum += weight;
        sum / total
    });
    let mut up_to: Vec<_> = up_to.collect();
    // All that rounding leaves is for the last one.
    up_to.pop();
    up_to
}

/// The times at which requests are due, each told when it comes: a Poisson process with so many
/// per second.
///
/// A thread waits for them: its timer is late by a twentieth of a millisecond, those of a runtime by
/// a whole one, which would be most of a latency that counts from there.
fn arrivals(rate: f64, mut random: Rng, window: Window) -> mpsc::UnboundedReceiver<u64> {
    let (due, arrivals) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let mut time = window.start;
        loop {
            time = time.saturating_add(gap(rate, &mut random));
            if time >= window.end {
                return;
            }
            thread::sleep(clock::until(time));
            if due.send(time).is_err() {
                return;
            }
        }
    });
    arrivals
}

/// Nanoseconds between two arrivals.
fn gap(rate: f64, random: &mut Rng) -> u64 {
    let seconds = -(1.0 - random.f64()).ln() / rate;
    (seconds * 1e9) as u64
}

/// Requests under way; beyond that, memory would measure itself.
const MAX_RUNNING: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_a_poisson_process() {
        let mut random = Rng::with_seed(7);
        let gaps: Vec<_> = (0..20_000)
            .map(|_| gap(1_000.0, &mut random) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.03, "the mean is {mean} ns");
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.03,
            "the variance is {variance}"
        );
    }

    #[test]
    fn the_first_key_is_wanted_twice_as_often_as_the_second() {
        let up_to = popularity(100);
        let ratio = up_to[0] / (up_to[1] - up_to[0]);
        assert!((ratio - 2.0).abs() < 1e-9, "the ratio is {ratio}");
        assert!(up_to.len() == 99 && up_to.is_sorted() && up_to[98] < 1.0);
    }
}
