use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polylock::{AcquireRequest, DistributedLock, ErrorKind, LockKey, Wait};
use tokio::task::JoinSet;

use super::measurement::Measurement;
use crate::clock::{self, nanos};
use crate::report::{Footprint, Sample};
use crate::subject::{Failure, UNSUPPORTED};
use crate::workloads::meter;

/// Holds many locks, lets them be renewed, has a task wait for each, and frees them.
pub(super) async fn measure(measurement: &Measurement<'_>) -> Result<Sample, Failure> {
    let locks = measurement.target.opened.runner.locks();
    let locks = locks.ok_or_else(|| Failure::new(UNSUPPORTED, "not locks of this project"))?;
    let mut sample = Sample::default();
    let mut footprint = Footprint::default();
    let held = hold_and_wait(measurement, locks, &mut sample, &mut footprint).await;
    if let Err(failure) = held {
        sample.count(&failure);
    }
    sample.per_contender = vec![sample.acquisitions];
    sample.footprint = Some(footprint);
    Ok(sample)
}

async fn hold_and_wait(
    measurement: &Measurement<'_>,
    locks: &Arc<dyn DistributedLock>,
    sample: &mut Sample,
    footprint: &mut Footprint,
) -> Result<(), Failure> {
    let request = |key: &str, number: u64, wait| {
        let key = LockKey::new(format!("{}/{key}{number}", measurement.prefix))?;
        let request = AcquireRequest::new(key).with_ttl(measurement.plan.ttl);
        Ok::<_, Failure>(request.with_wait(Wait::AtMost(wait)))
    };
    let wanted = u64::from(measurement.parameters.contenders);
    let mut guards = Vec::new();
    let before = resident();
    while footprint.locks < wanted {
        match locks
            .acquire(&request("held", footprint.locks, MAX_WAIT)?)
            .await
        {
            Ok(guard) => guards.push(guard),
            // Of a pool of connections each lock may have one for itself.
            Err(error) if error.kind() == ErrorKind::Contended => {
                let text = format!("only {} of {wanted} locks at a time", guards.len());
                sample.count(&Failure::new("not held", text));
                break;
            }
            Err(error) => return Err(error.into()),
        }
        footprint.locks += 1;
    }
    sample.acquisitions = footprint.locks;
    footprint.held_bytes = resident().saturating_sub(before);

    let window = measurement.window(Duration::ZERO);
    let (used, commands) = tokio::join!(meter(window), measurement.commands(window));
    sample.duration_ns = window.length();
    sample.client_processors = used as f64 / window.length() as f64;
    sample.commands = commands;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    if lost > 0 {
        sample.count(&Failure::new(
            "lost",
            format!("{lost} locks were not renewed in time"),
        ));
    }

    let before = resident();
    let asked = Arc::new(AtomicUsize::new(0));
    let mut waiters = JoinSet::new();
    for number in 0..footprint.locks {
        let (locks, asked) = (Arc::clone(locks), Arc::clone(&asked));
        let request = request("held", number, MAX_QUEUE)?;
        waiters.spawn(async move {
            let mut acquire = Box::pin(locks.acquire(&request));
            let mut is_new = true;
            let guard = std::future::poll_fn(|cx| {
                let acquired = acquire.as_mut().poll(cx);
                asked.fetch_add(usize::from(std::mem::take(&mut is_new)), Ordering::Relaxed);
                acquired
            });
            guard.await?.release().await.map(drop)
        });
    }
    while asked.load(Ordering::Relaxed) < guards.len() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Until their requests are with the server.
    tokio::time::sleep(SETTLES_WITHIN).await;
    footprint.waiting_bytes = resident().saturating_sub(before);
    let began = clock::now();
    for guard in guards {
        guard.release().await?;
    }
    while let Some(served) = waiters.join_next().await {
        served.map_err(|error| Failure::of("panic", &error))??;
    }
    footprint.served_ns = clock::now() - began;

    // The first ones fill what others use again.
    let end = clock::now() + nanos(measurement.plan.duration);
    let mut before = resident();
    while footprint.used_once < 11 * wanted && clock::now() < end {
        let guard = locks
            .acquire(&request("once", footprint.used_once, MAX_WAIT)?)
            .await?;
        guard.release().await?;
        footprint.used_once += 1;
        if footprint.used_once == wanted {
            before = resident();
        }
    }
    footprint.left_bytes = resident().saturating_sub(before);
    Ok(())
}

/// Resident memory of this process in bytes; 0 where nobody tells.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// A wait for a lock that no other program knows.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// A wait until all have been served.
const MAX_QUEUE: Duration = Duration::from_secs(300);
const SETTLES_WITHIN: Duration = Duration::from_millis(200);
