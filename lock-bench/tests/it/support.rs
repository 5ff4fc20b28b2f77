//! Short plans, targets without a URL, and figures of what came out.

use std::future::ready;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lock_testkit::servers::{RedisServer, data_dir};
use polylock::DistributedLock;
use polylock_bench::plan::{Plan, Workload};
use polylock_bench::report::{Report, Sample};
use polylock_bench::subject::{Failure, Subject};
use polylock_bench::target::{Opened, Openers, Target};
use tempfile::TempDir;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// A run without a progress bar.
pub(crate) async fn run(plan: &Plan, targets: Vec<Target>) -> Result<Report, Failure> {
    polylock_bench::run(plan, targets, &|_, _, _| {}).await
}

/// One short measurement of each workload, without bare commands.
pub(crate) fn plan(workloads: &[Workload], contenders: u32) -> Plan {
    let mut plan = Plan::default();
    plan.workloads = workloads.to_vec();
    plan.contenders = vec![contenders];
    plan.duration = Duration::from_millis(200);
    plan.warm_up = Duration::from_millis(20);
    plan.repeats = 1;
    plan.with_bare = false;
    plan
}

/// A target that is opened already.
pub(crate) fn made(opened: Opened) -> Target {
    let openers = Openers::compiled_in().with_peer("made", move |_| ready(Ok(opened.clone())));
    openers
        .target("made", "made:here")
        .expect("it is added here")
}

pub(crate) fn locks(locks: Arc<dyn DistributedLock>) -> Target {
    made(Opened::locks("made", locks))
}

/// A lock in this process with a fault.
pub(crate) fn faulty(fault: Fault) -> Target {
    let subject = Faulty {
        fault,
        permit: Arc::new(Semaphore::new(1)),
        began: Arc::default(),
        tokens: Arc::default(),
    };
    made(Opened::peer("made", subject))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    ExcludesNobody,
    ExcludesNobodyInOrder,
    Fails,
    GivesUp,
    Hangs,
    Panics,
    /// Excludes, and takes so long to release.
    SlowRelease(Duration),
    /// Answers at once at first, and then no more.
    StallsForEver,
    StallsUntilAfterTheEnd,
}

#[derive(Clone)]
struct Faulty {
    fault: Fault,
    permit: Arc<Semaphore>,
    began: Arc<OnceLock<Instant>>,
    tokens: Arc<AtomicU64>,
}

impl Subject for Faulty {
    type Key = ();
    type Held = (Option<u64>, Option<OwnedSemaphorePermit>);

    fn key(&self, _name: &str, _ttl: Duration) -> Result<(), Failure> {
        Ok(())
    }

    async fn acquire(&self, _key: &(), wait: Duration) -> Result<Option<Self::Held>, Failure> {
        let began = *self.began.get_or_init(Instant::now);
        let is_stalled = began.elapsed() > Duration::from_millis(150);
        match self.fault {
            Fault::ExcludesNobody => {}
            Fault::ExcludesNobodyInOrder => {
                let token = self.tokens.fetch_add(1, Ordering::SeqCst);
                return Ok(Some((Some(token), None)));
            }
            Fault::Fails => return Err(Failure::new("unavailable", "no answer")),
            Fault::GivesUp => return Ok(None),
            Fault::Hangs => std::future::pending().await,
            Fault::Panics => panic!("as it was told to"),
            Fault::SlowRelease(_) => {
                let permit = Arc::clone(&self.permit).acquire_owned();
                let permit = tokio::time::timeout(wait, permit).await;
                return Ok(permit.ok().map(|permit| (None, permit.ok())));
            }
            Fault::StallsForEver if is_stalled => std::future::pending().await,
            Fault::StallsUntilAfterTheEnd if is_stalled => {
                tokio::time::sleep_until(began + Duration::from_millis(900)).await;
            }
            Fault::StallsForEver | Fault::StallsUntilAfterTheEnd => {}
        }
        Ok(Some((None, None)))
    }

    fn token(held: &Self::Held) -> Option<u64> {
        held.0
    }

    async fn release(&self, held: Self::Held) -> Result<(), Failure> {
        if let Fault::SlowRelease(lasts) = self.fault {
            tokio::time::sleep(lasts).await;
        }
        drop(held);
        Ok(())
    }
}

pub(crate) fn memory() -> Target {
    target("memory", "memory:".to_owned())
}

pub(crate) async fn measure(plan: &Plan, target: Target) -> Report {
    let report = run(plan, vec![target]).await;
    report.expect("nothing is wrong with the plan or the target")
}

/// The only sample of the only series.
pub(crate) async fn sample(plan: &Plan, target: Target) -> Sample {
    let mut report = measure(plan, target).await;
    assert_eq!(
        (report.series.len(), report.series[0].samples.len()),
        (1, 1)
    );
    report.series.remove(0).samples.remove(0)
}

/// Openers whose contenders are processes of the example.
pub(crate) fn openers_with_processes() -> Openers {
    Openers::compiled_in().with_worker(worker())
}

/// A directory in memory, if there is enough of it: a disk that other tests keep busy stalls for longer than
/// a lease of a second lasts.
pub(crate) fn memory_dir() -> TempDir {
    tempfile::tempdir_in(data_dir()).expect("it takes directories")
}

/// A file of a directory that has to live as long.
pub(crate) fn sqlite(dir: &TempDir) -> Target {
    let file = dir.path().join("locks.db");
    target("sqlite", format!("sqlite:{}", file.display()))
}

pub(crate) fn redis(server: &RedisServer) -> Target {
    target("redis", server.url())
}

fn target(name: &str, url: String) -> Target {
    openers_with_processes()
        .target(name, url)
        .expect("it is compiled in")
}

/// The example, which cargo builds with the tests.
pub(crate) fn worker() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let target = test.ancestors().nth(2).expect("it lies in target/*/deps");
    let program = target.join("examples/worker");
    assert!(
        program.exists(),
        "`cargo build -p polylock-bench --examples`"
    );
    program
}
