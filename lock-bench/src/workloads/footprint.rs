use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polylock::{AcquireRequest, DistributedLock, ErrorKind, LockGuard, LockKey, Wait};
use tokio::task::JoinSet;

use super::{ContenderJob, meter};
use crate::clock;
use crate::measure::{RecordedSpans, SpanLog, Window};
use crate::report::Footprint;
use crate::subject::Failure;

/// Locks that this process holds, which does nothing else: its growth is theirs.
pub(crate) struct HeldLocks {
    locks: Arc<dyn DistributedLock>,
    job: ContenderJob,
    guards: Vec<LockGuard>,
    failures: Vec<Failure>,
    footprint: Footprint,
}

impl HeldLocks {
    /// Acquires as many as the job has contenders, or as many as the target has at a time.
    pub(crate) async fn acquire(
        locks: Arc<dyn DistributedLock>,
        job: ContenderJob,
    ) -> Result<Self, Failure> {
        let mut held = Self {
            locks,
            job,
            guards: Vec::new(),
            failures: Vec::new(),
            footprint: Footprint::default(),
        };
        let (wanted, before) = (held.job.contenders.len(), resident());
        let deadline = Instant::now() + ACQUIRE_TIMEOUT;
        while held.guards.len() < wanted {
            let request = held.request("held", held.guards.len(), MAX_WAIT)?;
            match held.locks.acquire(&request).await {
                Ok(guard) => held.guards.push(guard),
                // Of a pool of connections each lock may have one for itself.
                Err(error) if error.kind() == ErrorKind::QueueFull => break,
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        let count = held.guards.len();
        if count < wanted {
            let text = format!("only {count} of {wanted} locks at a time");
            held.failures.push(Failure::new("not held", text));
        }
        held.footprint.locks = count as u64;
        held.footprint.held_bytes = resident().saturating_sub(before);
        Ok(held)
    }

    /// Lets them be renewed in the window, then has a task wait for each, and frees them.
    pub(crate) async fn measure(mut self, window: Window) -> Result<RecordedSpans, Failure> {
        let processor_ns = meter(window).await;
        let lost = self.guards.iter().filter(|guard| !guard.is_held()).count();
        let text = format!("{lost} locks were not renewed in time");
        self.failures
            .extend(iter::repeat_n(Failure::new("lost", text), lost));
        self.serve_waiters().await?;
        self.use_others_once(window.length()).await?;
        let mut log = SpanLog::new(window, 0);
        self.failures
            .iter()
            .for_each(|failure| log.push_failure(failure));
        Ok(RecordedSpans {
            per_contender: BTreeMap::from([(0, self.footprint.locks)]),
            processor_ns,
            footprint: Some(self.footprint),
            ..RecordedSpans::of(0, log)
        })
    }

    async fn serve_waiters(&mut self) -> Result<(), Failure> {
        let (before, count) = (resident(), self.guards.len());
        let requested = Arc::new(AtomicUsize::new(0));
        let mut waiters = JoinSet::new();
        for number in 0..count {
            let (locks, requested) = (Arc::clone(&self.locks), Arc::clone(&requested));
            let request = self.request("held", number, MAX_QUEUE)?;
            waiters.spawn(async move {
                requested.fetch_add(1, Ordering::Relaxed);
                locks.acquire(&request).await?.release().await.map(drop)
            });
        }
        while requested.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Until their requests are with the server.
        tokio::time::sleep(SETTLE_TIME).await;
        self.footprint.waiting_bytes = resident().saturating_sub(before);
        let began = clock::now();
        for guard in std::mem::take(&mut self.guards) {
            guard.release().await?;
        }
        while let Some(served) = waiters.join_next().await {
            super::joined(served)??;
        }
        self.footprint.served_ns = clock::now() - began;
        Ok(())
    }

    /// What locks leave behind that are used once; the first ones fill what others use again.
    async fn use_others_once(&mut self, nanos: u64) -> Result<(), Failure> {
        let (end, wanted) = (clock::now() + nanos, self.job.contenders.len());
        let mut before = resident();
        let mut used = 0;
        while used < 11 * wanted && clock::now() < end {
            let request = self.request("once", used, MAX_WAIT)?;
            self.locks.acquire(&request).await?.release().await?;
            used += 1;
            if used == wanted {
                before = resident();
            }
        }
        self.footprint.used_once = used as u64;
        self.footprint.left_bytes = resident().saturating_sub(before);
        Ok(())
    }

    fn request(&self, key: &str, number: usize, wait: Duration) -> Result<AcquireRequest, Failure> {
        let key = LockKey::new(format!("{}/{key}{number}", self.job.prefix))?;
        let request = AcquireRequest::new(key).with_ttl(self.job.ttl);
        Ok(request.with_wait(Wait::AtMost(wait)))
    }
}

/// Resident memory of this process in bytes; 0 where the system does not tell.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// For all locks; a slow disk has fewer.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// A wait for a lock that no other program knows.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// A wait until all have been served.
const MAX_QUEUE: Duration = Duration::from_secs(300);
const SETTLE_TIME: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use polylock::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn every_lost_lock_is_an_error() {
        let store = Memory::new();
        let job = ContenderJob {
            contenders: 0..3,
            keys: 3,
            rate: None,
            prefix: "test".to_owned(),
            hold: Duration::ZERO,
            ttl: Duration::from_secs(30),
            max_spans: 1,
            seed: 1,
        };
        let held = HeldLocks::acquire(Arc::new(store.client()), job)
            .await
            .unwrap();
        let admin = store.admin().unwrap();
        for guard in &held.guards[..2] {
            admin.break_lock(guard.key(), "a test").await.unwrap();
            guard.lost().await;
        }
        let start = clock::now();
        let window = Window {
            start,
            from: start,
            end: start + 1_000_000,
        };
        let recorded = held.measure(window).await.unwrap();
        assert_eq!(recorded.errors, BTreeMap::from([("lost".to_owned(), 2)]));
        assert!(
            recorded
                .failures
                .contains(&"2 locks were not renewed in time".to_owned())
        );
    }
}
