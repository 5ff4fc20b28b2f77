//! Processes that are killed and stopped.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use polylock_core::{DistributedLock, DistributedLockExt, LockKey, LockLifetime};

use super::Case;
use super::case::SOON;
use super::support::{joined, noted};
use crate::history::{Checker, HistoryEvent, Recorder, Summary, What};
use crate::taker::{Take, TakerProcess};

fn taker(case: &Case, key: &LockKey) -> Take {
    let taker = case.harness().taker().expect("the case needs a lock-taker");
    taker.take(key).with_ttl(case.ttl())
}

fn spawn(take: Take) -> TakerProcess {
    take.spawn().expect("the lock-taker can be started")
}

/// Kills a process; a lock that lives with a connection is free from then on, whatever time it had.
async fn kill(case: &Case, process: &mut TakerProcess, key: &LockKey, recorder: &Recorder) {
    if case.client().await.capabilities().bound == LockLifetime::Connection {
        // A grant after the note would count as held for its whole time.
        process.stop().expect("it can be stopped");
        let how = "killed".to_owned();
        recorder.record(key, 0, What::Interfered { how });
    }
    process.kill().expect("it can be killed");
}

fn granted(what: &What) -> bool {
    matches!(what, What::Granted { .. })
}

/// Time for a process to start and to get a free lock.
const STARTED: Duration = Duration::from_secs(15);

/// A waiter gets the lock of a killed holder within its ttl and a bound.
pub async fn waiter_gets_lock_after_holder_is_killed(case: Case) {
    let (client, key, recorder) = (case.client().await, case.key(), Recorder::new());
    let mut process = spawn(taker(&case, &key));
    process.told(STARTED, granted).await;
    case.assert_taken(&key).await;
    kill(&case, &mut process, &key, &recorder).await;
    let killed = Instant::now();
    let request = case.patient(&key);
    let next = noted(&recorder, &client, &request).await;
    let elapsed = killed.elapsed();
    assert!(
        elapsed < case.ttl() + Duration::from_secs(2),
        "granted {elapsed:?} after the kill"
    );
    next.release().await.expect("a held lock is released");
    check(&case, &recorder, &[process]);
}

/// A holder that is stopped beyond its ttl sees its loss at its first check, and its release affects no
/// other holder.
pub async fn a_holder_that_was_stopped_sees_its_loss_at_once(case: Case) {
    let (client, key, recorder) = (case.client().await, case.key(), Recorder::new());
    let mut process = spawn(taker(&case, &key));
    process
        .told(STARTED, |what| matches!(what, What::Held { .. }))
        .await;
    process.stop().expect("it can be stopped");
    let request = case.patient(&key);
    let next = noted(&recorder, &client, &request).await;
    process.resume().expect("it can go on");
    process
        .told(SOON, |what| matches!(what, What::Lost { .. }))
        .await;
    let status = process.wait().expect("it ends");
    assert_eq!(status.code(), Some(1), "it did not see its loss");
    // A look that found the lock held would be an overlap in the histories together.
    assert!(next.look());
    case.assert_taken(&key).await;
    next.release().await.expect("a held lock is released");
    check(&case, &recorder, &[process]);
}

/// A killed waiter is passed over.
pub async fn a_waiter_that_is_killed_is_passed_over(case: Case) {
    let (holder, next, key) = (case.client().await, case.client().await, case.key());
    let guard = holder.lock(&key).await.expect("a free lock is granted");
    let mut process = spawn(taker(&case, &key));
    process
        .told(STARTED, |what| matches!(what, What::Requested { .. }))
        .await;
    case.queued(&key, 1).await;
    let request = case.request_within(&key, case.after_death() + SOON);
    let waiting = tokio::spawn(async move { next.acquire(&request).await });
    process.kill().expect("it can be killed");
    guard.release().await.expect("a held lock is released");
    let began = Instant::now();
    let guard = joined(waiting).await;
    let elapsed = began.elapsed();
    assert!(
        elapsed < case.ttl() + Duration::from_secs(2),
        "granted {elapsed:?} after the kill"
    );
    guard.release().await.expect("a held lock is released");
    case.assert_free(&key).await;
}

/// Processes that count in a file lose no increment.
pub async fn no_increment_of_several_processes_is_lost(case: Case) {
    let (key, file) = (case.key(), CounterFile::new(&case));
    let take = || {
        taker(&case, &key)
            .with_hold(Duration::ZERO)
            .with_increment(&file.0)
    };
    let mut processes: Vec<_> = (0..4).map(|_| spawn(take().with_rounds(15))).collect();
    for process in &mut processes {
        let status = tokio::task::block_in_place(|| process.wait()).expect("it ends");
        assert!(status.success(), "{status}");
    }
    assert_eq!(file.count(), 60);
    let summary = check(&case, &Recorder::new(), &processes);
    assert_eq!(summary.grants, 60);
    case.assert_free(&key).await;
}

/// Processes that are killed at any point leave order behind.
pub async fn processes_killed_at_any_moment_leave_order(case: Case) {
    let (key, file, recorder) = (case.key(), CounterFile::new(&case), Recorder::new());
    let take = || {
        taker(&case, &key)
            .with_hold(Duration::from_millis(1))
            .with_increment(&file.0)
    };
    let mut processes = Vec::new();
    for n in 0..6 {
        processes.push(spawn(take().with_rounds(1_000)));
        let process: &mut TakerProcess = &mut processes[n];
        let told = |what: &What| matches!(what, What::Requested { .. });
        process.told(STARTED, told).await;
        tokio::time::sleep(Duration::from_millis(7 * n as u64)).await;
        kill(&case, process, &key, &recorder).await;
    }
    let client = case.client().await;
    let request = case.patient(&key);
    let held = noted(&recorder, &client, &request).await;
    held.release().await.expect("a held lock is released");
    check(&case, &recorder, &processes);
}

fn check(case: &Case, recorder: &Recorder, processes: &[TakerProcess]) -> Summary {
    let told = processes.iter().flat_map(TakerProcess::events);
    let events: Vec<HistoryEvent> = recorder.events().into_iter().chain(told).collect();
    checker(case).check(&events).assert_clean()
}

/// Tolerates that the lock of a killed process is free only after its ttl.
fn checker(case: &Case) -> Checker {
    Checker::new().with_max_idle(case.ttl() + Duration::from_secs(10))
}

/// A file for a counter, removed at the end.
struct CounterFile(PathBuf);

impl CounterFile {
    fn new(case: &Case) -> Self {
        Self(std::env::temp_dir().join(format!("lock-testkit-{}.count", case.prefix())))
    }

    fn count(&self) -> u64 {
        let text = std::fs::read_to_string(&self.0).expect("the counter is there");
        let count = text
            .split_whitespace()
            .next()
            .and_then(|count| count.parse().ok());
        count.expect("the counter is a number")
    }
}

impl Drop for CounterFile {
    fn drop(&mut self) {
        // The file does not exist if no process counted.
        drop(std::fs::remove_file(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use polylock_core::memory::Memory;

    use super::*;
    use crate::Harness;

    /// A backend whose sessions outlive their process by this.
    const SESSION: Duration = Duration::from_secs(15);

    #[derive(Debug)]
    struct Sessions(Memory);

    #[async_trait]
    impl Harness for Sessions {
        async fn client(&self) -> Arc<dyn DistributedLock> {
            Arc::new(self.0.client())
        }

        fn shortest_ttl(&self) -> Duration {
            SESSION
        }
    }

    #[test]
    fn a_waiter_may_wait_for_the_session_of_a_killed_process() {
        let case = Case::new(Arc::new(Sessions(Memory::new())));
        let event = |second: u64, attempt, what| {
            HistoryEvent::new(second * 1_000_000_000, "k", attempt, what)
        };
        let granted = What::Granted {
            token: None,
            until: None,
        };
        let events = [
            event(0, 1, What::exclusive()),
            event(1, 1, granted.clone()),
            event(2, 2, What::exclusive()),
            event(1 + SESSION.as_secs() + 1, 2, granted),
        ];
        checker(&case).check(&events).assert_clean();
    }
}
