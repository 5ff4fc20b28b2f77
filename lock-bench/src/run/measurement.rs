use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::crash;
use super::prepared::PreparedTarget;
use crate::clock::{self, nanos};
use crate::measure::{RecordedSpans, Window, sample};
use crate::plan::{ContendersAs, Plan, Workload};
use crate::probe::Probe;
use crate::report::{Sample, Series};
use crate::subject::Failure;
use crate::worker::{WorkerProcess, WorkerTask};
use crate::workloads::{ContenderJob, Transport, serve_requests};

/// One measurement, of one target under one workload.
pub(super) struct TargetMeasurement<'a> {
    pub(super) plan: &'a Plan,
    pub(super) target: &'a PreparedTarget,
    pub(super) series: &'a mut Series,
    /// What the names of all its keys begin with.
    pub(super) prefix: String,
    pub(super) seed: u64,
}

impl TargetMeasurement<'_> {
    /// Adds a sample to the series.
    pub(super) async fn make(self) -> Result<(), Failure> {
        let sample = match self.series.workload {
            Workload::CrashRecovery => {
                crash::measure(self.target, &mut self.series.parameters, &self.prefix).await
            }
            _ => self.sample().await,
        };
        let sample = sample.map_err(|failure| failure.at(&self.series.target))?;
        self.series.samples.push(sample);
        Ok(())
    }

    async fn sample(&self) -> Result<Sample, Failure> {
        let (workload, parameters) = (self.series.workload, &self.series.parameters);
        let is_footprint = workload == Workload::Footprint;
        let by_processes = is_footprint || parameters.contenders_as == ContendersAs::Processes;
        let (recorded, commands, window) = match by_processes {
            true => self.by_processes().await?,
            false => self.by_tasks().await?,
        };
        // One process has all locks of a footprint.
        let contenders = if is_footprint {
            1
        } else {
            parameters.contenders
        };
        let is_open = workload == Workload::OpenLoop;
        // Millions of spans are sorted, and the caller has other tasks.
        let made =
            tokio::task::spawn_blocking(move || sample(recorded, contenders, window, is_open));
        let sample = made.await.map_err(|e| Failure::of("panic", &e))?;
        Ok(Sample { commands, ..sample })
    }

    async fn by_tasks(&self) -> Result<(RecordedSpans, Option<u64>, Window), Failure> {
        let window = self.window(LEAD);
        let job = self.job(0..self.series.parameters.contenders);
        let opened = &self.target.opened;
        let transport = match self.series.workload {
            Workload::Layer => Some(Transport::Call),
            Workload::Http => Some(Transport::Http),
            _ => None,
        };
        let recorded = async {
            match (transport, &opened.locks) {
                (Some(transport), Some(locks)) => {
                    serve_requests(Arc::clone(locks), job, transport, window).await
                }
                _ => opened.contend(job, window).await,
            }
        };
        let (recorded, commands) = tokio::join!(recorded, self.commands(window));
        Ok((recorded?, commands, window))
    }

    async fn by_processes(&self) -> Result<(RecordedSpans, Option<u64>, Window), Failure> {
        let all = 0..self.series.parameters.contenders;
        let (works, after) = match self.series.workload {
            // By one that has done nothing before, whose memory is that of the locks.
            Workload::Footprint => {
                let after = SERVE_TIMEOUT + self.plan.duration;
                (vec![WorkerTask::Footprint(self.job(all))], after)
            }
            _ => {
                let works = all.map(|number| WorkerTask::Contend(self.job(number..number + 1)));
                (works.collect(), Duration::ZERO)
            }
        };
        let mut processes = Vec::new();
        for work in works {
            let bare = self.target.bare_run();
            processes.push(WorkerProcess::start(&self.target.target, bare, work).await?);
        }
        for process in &mut processes {
            process.started::<()>().await?;
        }
        let window = self.window(LEAD + LEAD_OF_ONE * processes.len() as u32);
        for process in &mut processes {
            process.say(&window).await?;
        }
        let recorded = async {
            let mut all = RecordedSpans::default();
            for process in processes {
                all.add(process.recorded(window, after).await?);
            }
            Ok::<_, Failure>(all)
        };
        let (recorded, commands) = tokio::join!(recorded, self.commands(window));
        Ok((recorded?, commands, window))
    }

    fn job(&self, contenders: Range<u32>) -> ContenderJob {
        let parameters = &self.series.parameters;
        let rate = parameters.rate;
        ContenderJob {
            contenders,
            keys: parameters.keys,
            rate: rate.map(|rate| rate / f64::from(parameters.contenders)),
            prefix: self.prefix.clone(),
            hold: Duration::from_nanos(parameters.hold_ns),
            ttl: self.plan.ttl,
            max_spans: MAX_SPANS / parameters.contenders as usize,
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
const LEAD_OF_ONE: Duration = Duration::from_millis(1);
/// All waiters of a footprint.
const SERVE_TIMEOUT: Duration = Duration::from_secs(300);

/// Of a measurement: 112 MB. Each contender has an equal share, and one that fills it thins out for all.
const MAX_SPANS: usize = 2_000_000;
