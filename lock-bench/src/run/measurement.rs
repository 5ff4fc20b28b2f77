use std::sync::Arc;
use std::time::Duration;

use super::crash;
use super::prepared::Prepared;
use crate::clock::{self, nanos};
use crate::measure::{Recorded, Window, sample};
use crate::plan::{ContendersAs, Plan, Workload};
use crate::report::{Parameters, Sample};
use crate::subject::Failure;
use crate::target::Probe;
use crate::worker::{Part, Process, Work};
use crate::workloads::{Job, Task, serve_requests};

/// One measurement, of one target under one workload.
pub(super) struct Measurement<'a> {
    pub(super) plan: &'a Plan,
    pub(super) target: &'a Prepared,
    pub(super) part: Part,
    pub(super) workload: Workload,
    pub(super) parameters: &'a mut Parameters,
    pub(super) prefix: String,
    pub(super) seed: u64,
}

impl Measurement<'_> {
    pub(super) async fn make(self) -> Result<Sample, Failure> {
        if self.workload == Workload::CrashRecovery {
            return crash::measure(self.target, self.parameters, &self.prefix).await;
        }
        let contenders = match self.workload {
            Workload::Footprint => 1,
            _ => self.parameters.contenders,
        };
        let (recorded, commands, window) = match self.parameters.contenders_as {
            ContendersAs::Tasks if self.workload != Workload::Footprint => self.by_tasks().await?,
            _ => self.by_processes().await?,
        };
        let is_open = self.workload == Workload::OpenLoop;
        // Millions of spans are sorted, and the caller has other tasks.
        let made =
            tokio::task::spawn_blocking(move || sample(recorded, contenders, window, is_open));
        let sample = made.await.map_err(|e| Failure::of("panic", &e))?;
        Ok(Sample { commands, ..sample })
    }

    async fn by_tasks(&self) -> Result<(Recorded, Option<u64>, Window), Failure> {
        let window = self.window(LEAD);
        let job = self.job(0..self.parameters.contenders);
        let recorded = async {
            match (self.workload, self.target.opened.runner.locks()) {
                (Workload::Layer, Some(locks)) => {
                    serve_requests(Arc::clone(locks), job, window).await
                }
                _ => self.target.runner(self.part).contend(job, window).await,
            }
        };
        let (recorded, commands) = tokio::join!(recorded, self.commands(window));
        Ok((recorded?, commands, window))
    }

    async fn by_processes(&self) -> Result<(Recorded, Option<u64>, Window), Failure> {
        let all = 0..self.parameters.contenders;
        let (works, after) = match self.workload {
            // By one that has done nothing before, whose memory is that of the locks.
            Workload::Footprint => {
                let after = SERVES_WITHIN + self.plan.duration;
                (vec![Work::Footprint(self.job(all))], after)
            }
            _ => {
                let works = all.map(|number| Work::Contend(self.job(number..number + 1)));
                (works.collect(), Duration::ZERO)
            }
        };
        let mut processes = Vec::new();
        for work in works {
            let place = (self.target.run, self.part);
            processes.push(Process::start(&self.target.target, place, work).await?);
        }
        for process in &mut processes {
            process.ready().await?;
        }
        let window = self.window(LEAD + LEAD_OF_ONE * processes.len() as u32);
        for process in &mut processes {
            process.begin(window).await?;
        }
        let recorded = async {
            let mut all = Recorded::default();
            for process in processes {
                all.add(process.recorded(window, after).await?);
            }
            Ok::<_, Failure>(all)
        };
        let (recorded, commands) = tokio::join!(recorded, self.commands(window));
        Ok((recorded?, commands, window))
    }

    fn job(&self, contenders: std::ops::Range<u32>) -> Job {
        let all = self.parameters.contenders;
        Job {
            task: match self.workload {
                Workload::OpenLoop => Task::Open {
                    rate: self.plan.rate / f64::from(all),
                    keys: self.parameters.keys,
                },
                _ => Task::Closed {
                    has_own_key: self.parameters.keys > 1,
                },
            },
            contenders,
            prefix: self.prefix.clone(),
            hold: Duration::from_nanos(self.parameters.hold_ns),
            ttl: self.plan.ttl,
            most_spans: MOST_SPANS / all as usize,
            seed: self.seed,
        }
    }

    fn window(&self, lead: Duration) -> Window {
        let start = clock::now() + nanos(lead);
        let from = start + nanos(self.plan.warm_up);
        Window {
            start,
            from,
            end: from + nanos(self.plan.duration),
        }
    }

    /// Commands that the server counts in the window.
    async fn commands(&self, window: Window) -> Option<u64> {
        let probe = self.target.probe.as_deref()?;
        clock::sleep_until(window.from).await;
        let before = count(probe).await?;
        clock::sleep_until(window.end).await;
        let after = count(probe).await?;
        // The questions count too.
        after.checked_sub(before + 1)
    }
}

/// A server that does not answer must not keep the run from ending.
async fn count(probe: &dyn Probe) -> Option<u64> {
    let commands = tokio::time::timeout(Duration::from_secs(5), probe.commands()).await;
    commands.ok()?.ok()?
}

/// From the order to the start, so that all begin together.
const LEAD: Duration = Duration::from_millis(5);
/// All waiters of a footprint.
const SERVES_WITHIN: Duration = Duration::from_secs(300);
const LEAD_OF_ONE: Duration = Duration::from_millis(1);

/// Of a measurement: 96 MB.
const MOST_SPANS: usize = 2_000_000;
