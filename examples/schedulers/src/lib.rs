//! A job that every instance of a service starts by its scheduler, and one of them runs:
//! [`Once`] with [apalis](https://docs.rs/apalis) and with
//! [tokio-cron-scheduler](https://docs.rs/tokio-cron-scheduler).
//!
//! ```console
//! $ cd examples/schedulers && cargo test
//! ```

use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::time::{SystemTime, UNIX_EPOCH};

use apalis::prelude::{BoxDynError, Data, WorkerBuilder};
use apalis_cron::{CronScheduler, Tick};
use polylock::coordination::{Once, OnceOutcome};
use polylock::prelude::*;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

/// One instance of the service.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Its connection to the lock service.
    pub locks: Arc<dyn DistributedLock>,
    /// How often its scheduler has started the job.
    pub ticks: Arc<AtomicU32>,
    /// Where all instances write their reports.
    pub reports: Sender<String>,
}

impl Instance {
    /// Writes the report of this key, unless another instance has written it or is writing it.
    async fn report(&self, key: String) -> polylock::Result<()> {
        self.ticks.fetch_add(1, Relaxed);
        let once = Once::for_key(Arc::clone(&self.locks), "report", &key)?;
        let write = async |_| self.reports.send(key.clone());
        match once.run(write).await? {
            OnceOutcome::Failed(error) => eprintln!("no report {key}: {error}"),
            OnceOutcome::Unrecorded { error, .. } => eprintln!("perhaps again, {key}: {error}"),
            _ => {} // written here, or by another instance
        }
        Ok(())
    }
}

/// A worker of apalis. A tick knows its time, which is the key, the same on every instance.
///
/// A worker that stalls until the next tick is past gets `OutOfRange` from apalis-cron for it, and no
/// tick: that report is left to the other instances.
///
/// # Errors
///
/// If the schedule is invalid, or the worker fails.
pub async fn with_apalis(instance: Instance, schedule: &str) -> Result<(), BoxDynError> {
    async fn on_tick(tick: Tick, instance: Data<Instance>) -> Result<(), BoxDynError> {
        Ok(instance.report(tick.get_timestamp().to_string()).await?)
    }
    let schedule = cron::Schedule::from_str(schedule)?;
    let worker = WorkerBuilder::new("report")
        .backend(CronScheduler::new(schedule))
        .data(instance)
        .build(on_tick);
    Ok(worker.run().await?)
}

/// A job of tokio-cron-scheduler, which does not tell the time of its tick: the key is the moment by the
/// clock of the instance, as coarse as the schedule. Here that is a second; of a nightly job, the date.
///
/// # Errors
///
/// If the schedule is invalid, or the scheduler fails.
pub async fn with_tokio_cron_scheduler(
    instance: Instance,
    schedule: &str,
) -> Result<JobScheduler, JobSchedulerError> {
    let job = Job::new_async(schedule, move |_, _| {
        let instance = instance.clone();
        Box::pin(async move {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let key = now.unwrap_or_default().as_secs().to_string();
            if let Err(error) = instance.report(key).await {
                eprintln!("no report: {error}");
            }
        })
    })?;
    let scheduler = JobScheduler::new().await?;
    scheduler.add(job).await?;
    scheduler.start().await?;
    Ok(scheduler)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use polylock::memory::Memory;
    use tokio::time::{sleep, timeout};

    use super::*;

    const EVERY_SECOND: &str = "* * * * * *";
    const A_WHILE: Duration = Duration::from_millis(4_500);

    /// Two instances that share a lock service, and what they write.
    fn instances() -> ([Instance; 2], Receiver<String>) {
        let (store, (reports, written)) = (Memory::new(), channel());
        let instances = [store.client(), store.client()].map(|client| Instance {
            locks: Arc::new(client),
            ticks: Arc::default(),
            reports: reports.clone(),
        });
        (instances, written)
    }

    /// Each key once, although both instances have ticked.
    fn check(instances: &[Instance; 2], written: &Receiver<String>) {
        let ticks = instances.each_ref().map(|it| it.ticks.load(Relaxed));
        assert!(ticks.iter().all(|ticks| *ticks >= 2), "{ticks:?}");
        let mut reports: Vec<_> = written.try_iter().collect();
        let count = reports.len();
        assert!((2..=6).contains(&count), "{reports:?}");
        reports.sort();
        reports.dedup();
        assert_eq!(reports.len(), count, "a report was written twice");
    }

    #[tokio::test]
    async fn one_instance_runs_each_tick_of_apalis() {
        let (instances, written) = instances();
        let workers = instances.clone();
        let [here, there] = workers.map(|instance| with_apalis(instance, EVERY_SECOND));
        let both = async { tokio::try_join!(here, there) };
        assert!(timeout(A_WHILE, both).await.is_err(), "a worker has ended");
        check(&instances, &written);
    }

    #[tokio::test]
    async fn one_instance_runs_each_tick_of_tokio_cron_scheduler() {
        let (instances, written) = instances();
        for instance in instances.clone() {
            let started = with_tokio_cron_scheduler(instance, EVERY_SECOND).await;
            started.expect("it starts");
        }
        sleep(A_WHILE).await;
        check(&instances, &written);
    }
}
