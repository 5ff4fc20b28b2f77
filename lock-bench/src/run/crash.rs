use std::time::Duration;

use super::prepared::PreparedTarget;
use crate::clock;
use crate::connection::Opened;
use crate::report::{Parameters, Sample};
use crate::subject::{Failure, INVALID, UNSUPPORTED};
use crate::worker::{PROCESSES, WorkerProcess, WorkerTask};

/// Kills holders, one after the other, each while a task waits.
pub(super) async fn measure(
    target: &PreparedTarget,
    parameters: &mut Parameters,
    prefix: &str,
) -> Result<Sample, Failure> {
    let began = clock::now();
    let mut sample = Sample {
        per_contender: vec![0, 0],
        ..Sample::default()
    };
    let rounds = async {
        let ttl = min_ttl(&target.opened, prefix).await?;
        parameters.ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        for round in 0..ROUNDS {
            kill_one(target, format!("{prefix}/{round}"), ttl, &mut sample).await?;
        }
        Ok::<_, Failure>(())
    };
    match rounds.await {
        Err(failure) if failure.kind() == PROCESSES => return Err(failure),
        Err(failure) => sample.count(&failure),
        Ok(()) => {}
    }
    sample.duration_ns = clock::now() - began;
    Ok(sample)
}

/// One round: the holder is a process, and the waiter a task of this one.
async fn kill_one(
    target: &PreparedTarget,
    name: String,
    ttl: Duration,
    sample: &mut Sample,
) -> Result<(), Failure> {
    let work = WorkerTask::Hold {
        name: name.clone(),
        ttl,
    };
    let mut holder = WorkerProcess::start(&target.target, target.bare_run(), work).await?;
    let held: Option<u64> = holder.started().await?;
    let kill = async {
        // Until the waiter is in the queue of the server.
        tokio::time::sleep(WAIT_BEFORE_KILL).await;
        holder.kill().await
    };
    let acquire = target.opened.acquire(name, ttl, ttl + MAX_RECOVERY);
    let (killed, acquired) = tokio::join!(kill, acquire);
    let killed = killed?;
    match acquired {
        Ok(Some(acquired)) => {
            sample.acquisitions += 1;
            sample.per_contender[1] += 1;
            match acquired.since.checked_sub(killed) {
                Some(recovery) => sample.recovery_ns.push(recovery),
                None => sample
                    .violations
                    .push("a waiter got the lock while its holder was alive".to_owned()),
            }
            if let (Some(before), Some(after)) = (held, acquired.token)
                && after <= before
            {
                let what = format!("token {after} came after token {before}, of a killed holder");
                sample.violations.push(what);
            }
            if let Err(failure) = acquired.release.await {
                sample.count(&failure);
            }
        }
        Ok(None) => not_recovered(sample, clock::now().saturating_sub(killed)),
        Err(failure) => sample.count(&failure),
    }
    Ok(())
}

/// It counts with the time that the waiter waited: without it the others look like all.
fn not_recovered(sample: &mut Sample, waited: u64) {
    sample.recovery_ns.push(waited);
    sample.unserved += 1;
    sample.count(&Failure::new(
        "not recovered",
        "the lock of a killed holder stays taken",
    ));
}

impl Sample {
    fn count(&mut self, failure: &Failure) {
        *self.errors.entry(failure.kind().to_owned()).or_default() += 1;
        self.failures.push(failure.to_string());
    }
}

/// The shortest lease that the target grants.
async fn min_ttl(opened: &Opened, prefix: &str) -> Result<Duration, Failure> {
    let mut refused = None;
    for seconds in LEASES {
        let ttl = Duration::from_secs(seconds);
        match opened
            .acquire(format!("{prefix}/ttl-{seconds}"), ttl, MAX_WAIT)
            .await
        {
            Ok(Some(acquired)) => {
                acquired.release.await?;
                return Ok(ttl);
            }
            Ok(None) => {}
            Err(failure) if [INVALID, UNSUPPORTED].contains(&failure.kind()) => {
                refused = Some(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(refused.unwrap_or_else(|| Failure::new("contended", "a lock of its own is taken")))
}

/// In seconds.
const LEASES: [u64; 6] = [1, 2, 4, 8, 15, 30];
/// Killed holders of a measurement.
const ROUNDS: u32 = 3;
/// A wait for a lock that no other program knows.
const MAX_WAIT: Duration = Duration::from_secs(10);
const WAIT_BEFORE_KILL: Duration = Duration::from_millis(200);
/// How long after the lease a lock may stay taken: sessions have terms of their own.
const MAX_RECOVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_stays_taken_counts_with_the_time_until_then() {
        let mut sample = Sample {
            recovery_ns: vec![5],
            ..Sample::default()
        };
        not_recovered(&mut sample, 61_000_000_000);
        assert_eq!(sample.recovery_ns, [5, 61_000_000_000]);
        assert_eq!((sample.acquisitions, sample.unserved), (0, 1));
        assert_eq!(sample.errors["not recovered"], 1);
    }
}
