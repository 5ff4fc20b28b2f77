use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::closed::turn;
use super::random::{Random, Zipf};
use super::{Job, joined, last_call, stuck};
use crate::clock;
use crate::measure::{Log, Recorded, Span, Window};
use crate::subject::{Failure, Subject};

/// Asks when it is time for it, whatever became of what was asked for before.
pub(super) async fn open<S: Subject>(
    subject: S,
    job: Arc<Job>,
    contender: u32,
    (rate, keys): (f64, u32),
    window: Window,
) -> Result<Recorded, Failure> {
    let names = (0..keys).map(|number| subject.key(&job.key(number)));
    let prepared: Arc<[S::Key]> = names.collect::<Result<Vec<_>, _>>()?.into();
    let requests = Arc::new(Mutex::new(Requests {
        log: Log::new(window, job.most_spans),
        waiting: HashMap::new(),
    }));
    let mut random = Random::new(job.seed ^ (u64::from(contender) << 32));
    let zipf = Zipf::new(keys);
    let mut arrivals = arrivals(rate, random.next(), window);
    let mut running = JoinSet::new();
    let (mut number, mut is_overrun) = (0_u64, false);
    while let Some(asked) = arrivals.recv().await {
        while let Some(ended) = running.try_join_next() {
            joined(ended)?;
        }
        let key = zipf.draw(&mut random);
        let request = Span {
            key,
            contender,
            asked,
            ..Span::default()
        };
        number += 1;
        if running.len() >= MOST_AT_A_TIME {
            is_overrun = true;
            lock(&requests).log.push_unserved(key, asked);
            continue;
        }
        lock(&requests).waiting.insert(number, request);
        let (subject, prepared, job) = (subject.clone(), Arc::clone(&prepared), Arc::clone(&job));
        let requests = Arc::clone(&requests);
        running.spawn(async move {
            let turn = turn(&subject, &prepared[key as usize], &job, request, window).await;
            let requests = &mut *lock(&requests);
            requests.waiting.remove(&number);
            let _written = turn.write(request, &mut requests.log);
        });
    }
    let left = clock::until(last_call(window));
    let all_ended = async {
        while let Some(ended) = running.join_next().await {
            joined(ended)?;
        }
        Ok::<_, Failure>(())
    };
    match tokio::time::timeout(left, all_ended).await {
        Ok(ended) => ended?,
        Err(_) => lock(&requests).log.push_failure(&stuck()),
    }
    running.shutdown().await;
    let requests = Arc::into_inner(requests).expect("BUG: all requests have ended");
    let Requests { mut log, waiting } = requests
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    for request in waiting.into_values() {
        log.push_unserved(request.key, request.asked);
    }
    Ok(Recorded {
        is_overrun,
        ..Recorded::of(contender, log)
    })
}

struct Requests {
    log: Log,
    /// Those under way, by their number.
    waiting: HashMap<u64, Span>,
}

fn lock(requests: &Mutex<Requests>) -> MutexGuard<'_, Requests> {
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The times at which requests are due, each told when it comes.
///
/// A thread waits for them: its timer is late by a twentieth of a millisecond, those of a runtime by
/// a whole one, which would be most of a latency that counts from there.
fn arrivals(rate: f64, seed: u64, window: Window) -> mpsc::UnboundedReceiver<u64> {
    let (due, arrivals) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let mut random = Random::new(seed);
        let mut time = window.start;
        loop {
            time = time.saturating_add(random.gap(rate));
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

/// Requests under way; beyond that, memory would measure itself.
const MOST_AT_A_TIME: usize = 4_096;
