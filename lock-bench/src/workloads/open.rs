use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};

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
    let log = Arc::new(Mutex::new(Log::new(window, job.most_spans)));
    let mut random = Random::new(job.seed ^ (u64::from(contender) << 32));
    let zipf = Zipf::new(keys);
    let mut arrivals = arrivals(rate, random.next(), window);
    let mut requests = Requests::default();
    let mut is_overrun = false;
    while let Some(asked) = arrivals.recv().await {
        requests.forget_ended()?;
        let key = zipf.draw(&mut random);
        if requests.running.len() >= MOST_AT_A_TIME {
            is_overrun = true;
            record(&log, |log| log.push_unserved(key, asked));
            continue;
        }
        let (subject, prepared, job) = (subject.clone(), Arc::clone(&prepared), Arc::clone(&job));
        let log = Arc::clone(&log);
        let request = Span {
            key,
            contender,
            asked,
            ..Span::default()
        };
        requests.spawn(key, asked, async move {
            let key = &prepared[key as usize];
            let turn = turn(&subject, key, &job, request, window).await;
            record(&log, |log| {
                match turn.span {
                    Some(span) => log.push(span),
                    None if turn.failure.is_none() => log.push_unserved(request.key, asked),
                    None => {}
                }
                if let Some(failure) = turn.failure {
                    log.push_failure(&failure);
                }
            });
        });
    }
    let left = clock::until(last_call(window));
    if let Ok(failed) = tokio::time::timeout(left, requests.all_ended()).await {
        failed?;
    } else {
        record(&log, |log| log.push_failure(&stuck()));
    }
    for (key, asked) in requests.give_up().await {
        record(&log, |log| log.push_unserved(key, asked));
    }
    let log = Arc::into_inner(log).expect("BUG: all requests have ended");
    let log = log.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Recorded {
        is_overrun,
        ..Recorded::of(contender, log)
    })
}

/// Requests under way: for which key, and when they should have been asked.
#[derive(Default)]
struct Requests {
    running: JoinSet<()>,
    asked: HashMap<task::Id, (u32, u64)>,
}

impl Requests {
    fn spawn(&mut self, key: u32, asked: u64, request: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(request).id();
        self.asked.insert(id, (key, asked));
    }

    /// Forgets those that have ended.
    fn forget_ended(&mut self) -> Result<(), Failure> {
        while let Some(ended) = self.running.try_join_next_with_id() {
            let (id, ()) = joined(ended)?;
            self.asked.remove(&id);
        }
        Ok(())
    }

    async fn all_ended(&mut self) -> Result<(), Failure> {
        while let Some(ended) = self.running.join_next_with_id().await {
            let (id, ()) = joined(ended)?;
            self.asked.remove(&id);
        }
        Ok(())
    }

    /// Ends those that still run, and tells which.
    async fn give_up(mut self) -> impl Iterator<Item = (u32, u64)> {
        self.running.abort_all();
        while let Some(ended) = self.running.join_next_with_id().await {
            // One that ended meanwhile has written down what became of it.
            if let Ok((id, ())) = ended {
                self.asked.remove(&id);
            }
        }
        self.asked.into_values()
    }
}

fn record(log: &Mutex<Log>, what: impl FnOnce(&mut Log)) {
    what(&mut log.lock().unwrap_or_else(PoisonError::into_inner));
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
