//! Jobs on instances that fail, die or are cut off.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use polylock_coordination::{
    CoordinationEvent, CoordinationObserver, Once, OnceGuard, OnceOutcome, OnceRun, OnceStart,
    RunOutcome,
};
use polylock_core::admin::LockAdmin as _;
use polylock_core::memory::{Fault, Memory, Reachable, Request};
use polylock_core::{
    DistributedLock, DistributedLockExt as _, Error, ErrorKind, LockKey, Released,
};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    Machine, Steered, TTL, client, label, lock, memory, millis, polled, polled_by_broken, secs,
};

const JOB: &str = "report";

fn job(client: impl DistributedLock + 'static, name: &str) -> Once {
    let job = Once::every(Arc::new(client), JOB, secs(3_600));
    let job = job.expect("memory has all that it takes");
    job.ttl(TTL).label(label(name))
}

/// The job on an instance that is a process of its own.
fn instance(store: &Memory, name: &str) -> Once {
    job(client(store), name)
}

/// The job of a key.
fn job_for(store: &Memory, key: &str) -> Once {
    let job = Once::for_key(Arc::new(store.client()), JOB, key);
    job.expect("memory has all that it takes").ttl(TTL)
}

async fn outcome(once: &Once) -> &'static str {
    let run = once.run(async |_| Ok::<_, String>(())).await;
    run.expect("the store answers").as_str()
}

/// The reason why a finished run is not recorded.
fn unrecorded<T, E>(outcome: OnceOutcome<T, E>) -> Error {
    match outcome {
        OnceOutcome::Unrecorded { error, .. } => error,
        other => panic!("{}", other.as_str()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_woken_costs_no_record() {
    let store = memory();
    let job = instance(&store, "a");
    let tasks = Mutex::new(Vec::new());
    let run = job.run(async |run: OnceRun| {
        let task = polled_by_broken(async move { run.ended().await });
        tasks.lock().expect("no panic").push(task);
        Ok::<_, String>(())
    });
    assert_eq!(run.await.expect("the store answers").as_str(), "ran");
    assert_eq!(outcome(&job).await, "skipped");
}

/// The outcomes that an observer gets.
#[derive(Debug, Default)]
struct Outcomes(Mutex<Vec<&'static str>>);

impl CoordinationObserver for Outcomes {
    fn happened(&self, event: &CoordinationEvent<'_>) {
        if let CoordinationEvent::Once { outcome, .. } = event {
            lock(&self.0).push(*outcome);
        }
    }
}

fn key() -> LockKey {
    LockKey::new(JOB).expect("a literal is a key")
}

#[tokio::test(start_paused = true)]
async fn of_many_instances_that_start_at_once_one_runs_the_job() {
    let (store, runs) = (memory(), Arc::new(AtomicUsize::new(0)));
    let mut instances = JoinSet::new();
    for n in 0..50 {
        let (once, runs) = (instance(&store, &format!("{n}")), Arc::clone(&runs));
        instances.spawn(async move {
            let work = async |_| {
                runs.fetch_add(1, Ordering::SeqCst);
                sleep(millis(10)).await;
                Ok::<_, String>(())
            };
            let first = once.run(work).await.expect("the store answers").as_str();
            sleep(millis(20)).await;
            let second = once.run(work).await.expect("the store answers").as_str();
            (first, second)
        });
    }
    let ended = instances.join_all().await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let first = |outcome| ended.iter().filter(|(first, _)| *first == outcome).count();
    assert_eq!((first("ran"), first("busy")), (1, 49));
    assert!(ended.iter().all(|(_, second)| *second == "skipped"));
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_looked_before_another_ran_the_job_skips_it() {
    let store = memory();
    let mut slow = Steered::new(&store);
    slow.delay = secs(1);
    let slow = job(slow, "slow");
    let there = instance(&store, "b");
    let fast = async {
        sleep(millis(500)).await;
        outcome(&there).await
    };
    // It has seen no run before it asks for the lock.
    let (slow, fast) = tokio::join!(outcome(&slow), fast);
    assert_eq!((slow, fast), ("skipped", "ran"));
    assert_eq!(store.live_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_recorded_with_its_label_and_the_next_run_sees_it() {
    let store = memory();
    let (here, there) = (instance(&store, "a"), instance(&store, "b"));
    assert_eq!(here.last_run().await.unwrap(), None);
    let mut first = None;
    let ran = here.run(async |run| {
        assert_eq!(run.last_run(), None);
        first = Some(run.fencing_token());
        Ok::<_, String>(42)
    });
    assert!(matches!(ran.await.unwrap(), OnceOutcome::Ran(42)));
    let last = there.last_run().await.unwrap().unwrap();
    assert_eq!((&last.label, last.outcome), (&label("a"), RunOutcome::Ran));
    assert!(last.started <= last.finished);
    let skipped = there.run(async |_| Ok::<_, String>(43)).await.unwrap();
    assert!(matches!(skipped, OnceOutcome::Skipped(seen) if seen == last));

    // A job with a key has a record of its own.
    let keyed = job_for(&store, "2026-11-25");
    assert_eq!(outcome(&keyed).await, "ran");
    assert_eq!(outcome(&keyed).await, "skipped");
    assert_eq!(there.last_run().await.unwrap(), Some(last));
}

#[tokio::test(start_paused = true)]
async fn a_straggler_with_an_old_key_runs_nothing_while_the_run_is_kept() {
    let store = memory();
    let on = |date: &str| job_for(&store, date);
    assert_eq!(outcome(&on("2026-11-24")).await, "ran");
    sleep(secs(24 * 3_600)).await;
    assert_eq!(outcome(&on("2026-11-25")).await, "ran");
    assert_eq!(outcome(&on("2026-11-24")).await, "skipped");
    sleep(secs(6 * 24 * 3_600 - 1)).await;
    assert_eq!(outcome(&on("2026-11-24")).await, "skipped");
    sleep(secs(2)).await;
    assert_eq!(outcome(&on("2026-11-24")).await, "ran", "7 days are over");
    assert_eq!(outcome(&on("2026-11-25")).await, "skipped");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_failed_for_a_key_is_due_at_once() {
    let store = memory();
    let instance = |name: &str| job_for(&store, "2026-11-25").label(label(name));
    let (here, there) = (instance("a"), instance("b"));
    let failed = here.run(async |_| Err::<(), _>("no paper")).await.unwrap();
    assert!(matches!(failed, OnceOutcome::Failed("no paper")));
    let last = there.last_run().await.unwrap().unwrap();
    let expected = (label("a"), RunOutcome::Failed);
    assert_eq!((last.label.clone(), last.outcome), expected);
    let again = there.run(async |run| {
        assert_eq!(run.last_run(), Some(&last));
        Ok::<_, String>(())
    });
    assert!(matches!(again.await.unwrap(), OnceOutcome::Ran(())));
    assert_eq!(outcome(&here).await, "skipped");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_process_died_is_due_after_its_lease() {
    let (store, machine) = (memory(), Machine::new());
    let dying = job(machine.client(&store), "a");
    let dead = machine.run(async move {
        let never = pending::<Result<(), String>>();
        dying.run(|_| never).await
    });
    sleep(secs(25)).await;
    let other = instance(&store, "b");
    assert_eq!(outcome(&other).await, "busy");
    machine.freeze();
    sleep(TTL - TTL / 3 - secs(1)).await;
    assert_eq!(outcome(&other).await, "busy");
    sleep(TTL / 3 + secs(1)).await;
    assert_eq!(outcome(&other).await, "ran");
    // It goes on, and learns that it was no run.
    machine.thaw();
    let error = dead.await.unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::Lost && error.is_outcome_unknown());
    assert_eq!(other.last_run().await.unwrap().unwrap().label, label("b"));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_lost_its_lock_records_no_success() {
    let (store, machine) = (memory(), Machine::new());
    // Its clock stands while it works, so that it does not notice by itself.
    let stale = job(machine.client(&store), "stale");
    let frozen = machine.clone();
    let work = async move |_| {
        frozen.freeze_with_clock();
        sleep(TTL * 3).await;
        Ok::<_, String>(())
    };
    let late = tokio::spawn(async move { stale.run(work).await });
    sleep(TTL + secs(1)).await;
    let next = instance(&store, "next");
    assert_eq!(outcome(&next).await, "ran");
    let error = unrecorded(late.await.unwrap().unwrap());
    assert!(error.kind() == ErrorKind::Lost && error.is_outcome_unknown());
    assert_eq!(next.last_run().await.unwrap().unwrap().label, label("next"));

    // One that notices is stopped, and the job is due.
    let failed = next.run(async |_| Err::<(), _>("again"));
    assert_eq!(failed.await.unwrap().as_str(), "skipped");
    let other = job_for(&store, "lost");
    let steps = AtomicUsize::new(0);
    let losing = other.run(async |_| {
        loop {
            steps.fetch_add(1, Ordering::SeqCst);
            sleep(millis(100)).await;
            if steps.load(Ordering::SeqCst) == 50 {
                store.faults().set_reachable(Reachable::Cut);
            }
        }
        #[expect(unreachable_code, reason = "the type of the work")]
        Ok::<(), String>(())
    });
    let error = losing.await.unwrap_err();
    assert!(error.kind() == ErrorKind::Lost && error.is_outcome_unknown());
    store.faults().set_reachable(Reachable::Connected);
    assert!(steps.load(Ordering::SeqCst) < 200);
    assert_eq!(other.last_run().await.unwrap(), None);
    sleep(TTL).await;
    assert_eq!(outcome(&other).await, "ran");
}

#[tokio::test(start_paused = true)]
async fn a_run_dropped_at_any_point_leaves_the_job_due_and_no_lock() {
    let (store, mut ran) = (memory(), false);
    for polls in 1..=12 {
        let once = instance(&store, "dropped");
        let run = once.run(async |_| {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            Ok::<_, String>(())
        });
        let ended = polled(polls, run).await;
        sleep(millis(1)).await;
        assert_eq!(store.live_keys(), 0, "after {polls} polls");
        let last = once.last_run().await.unwrap();
        ran |= ended.is_some();
        assert_eq!(last.is_some(), ran, "after {polls} polls");
    }
    assert!(ran, "more polls are needed");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_panics_is_due_and_holds_no_lock() {
    let (store, outcomes) = (memory(), Arc::<Outcomes>::default());
    let once = instance(&store, "a").observer(Arc::<Outcomes>::clone(&outcomes));
    let panics = tokio::spawn({
        let once = once.clone();
        async move {
            once.run(async |run| match run.fencing_token().value() {
                0 => Ok::<(), String>(()),
                _ => panic!("a broken job"),
            })
            .await
        }
    });
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(*lock(&outcomes.0), ["failed"]);
    sleep(millis(1)).await;
    assert_eq!(store.live_keys(), 0);
    assert_eq!(once.last_run().await.unwrap(), None);
    assert_eq!(outcome(&instance(&store, "b")).await, "ran");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_by_the_panic_of_another_future_is_cancelled() {
    let (store, outcomes) = (memory(), Arc::<Outcomes>::default());
    let once = instance(&store, "a").observer(Arc::<Outcomes>::clone(&outcomes));
    let panics = tokio::spawn({
        let once = once.clone();
        async move {
            let begun = Arc::new(Notify::new());
            let run = once.run(|_| {
                begun.notify_one();
                pending::<Result<(), String>>()
            });
            let neighbor = async {
                begun.notified().await;
                assert!(once.last_run().await.is_err(), "a broken neighbor");
            };
            drop(tokio::join!(run, neighbor));
        }
    });
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(*lock(&outcomes.0), ["cancelled"]);
    sleep(millis(1)).await;
    let dropped = once.run(|_| pending::<Result<(), String>>());
    assert!(timeout(millis(100), dropped).await.is_err());
    assert_eq!(*lock(&outcomes.0), ["cancelled"; 2], "without a panic");
}

#[tokio::test(start_paused = true)]
async fn a_run_costs_one_lock_two_reads_and_one_write() {
    let store = memory();
    let once = instance(&store, "a");
    let sent = async || {
        let before = store.faults().requests();
        (outcome(&once).await, store.faults().requests() - before)
    };
    let held = store.client();
    let guard = held.lock(&key()).await.unwrap();
    assert_eq!(sent().await, ("busy", 2), "a read and an attempt");
    guard.release().await.unwrap();
    // The lock is acquired and released.
    assert_eq!(sent().await, ("ran", 2 + 2 + 1));
    assert_eq!(sent().await, ("skipped", 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_moment_costs_no_second_run() {
    let store = memory();
    let once = instance(&store, "a");
    store.faults().set_reachable(Reachable::Cut);
    let error = once.run(async |_| Ok::<_, String>(())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    store.faults().set_reachable(Reachable::Connected);

    let run = once.run(async |_| {
        store.faults().set_reachable(Reachable::Cut);
        Ok::<_, String>(())
    });
    let back = async {
        sleep(secs(5)).await;
        store.faults().set_reachable(Reachable::Connected);
    };
    let (ended, ()) = tokio::join!(run, back);
    assert!(matches!(ended.unwrap(), OnceOutcome::Ran(())));
    assert_eq!(outcome(&instance(&store, "b")).await, "skipped");

    // A longer outage costs the lock, and the run is not recorded.
    let keyed = job_for(&store, "away");
    let run = keyed.run(async |_| {
        store.faults().set_reachable(Reachable::Cut);
        Ok::<_, String>(42)
    });
    let ended = timeout(TTL, run)
        .await
        .expect("it gives up when the lock is lost")
        .unwrap();
    assert!(matches!(ended, OnceOutcome::Unrecorded { value: 42, .. }));
    let error = unrecorded(ended);
    assert!(error.kind() == ErrorKind::Lost && error.is_outcome_unknown());
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_answer_is_lost_is_written_again_and_one_that_hangs_ends_after_a_ttl() {
    let store = memory();
    let with = async |fault: Fault, key: &str| {
        let run = job_for(&store, key);
        let began = Instant::now();
        let ended = run.run(async |_| {
            store.faults().plan(Request::Record, fault);
            Ok::<_, String>(())
        });
        let ended = ended.await.unwrap();
        let took = began.elapsed();
        (run, ended, took)
    };
    let (once, ended, _) = with(Fault::LostReply, "lost").await;
    assert!(matches!(ended, OnceOutcome::Ran(())));
    assert_eq!(outcome(&once).await, "skipped");

    let (once, ended, took) = with(Fault::Silence, "silent").await;
    assert!(
        took >= TTL && took <= TTL + millis(10),
        "ended after {took:?}"
    );
    let error = unrecorded(ended);
    assert!(error.kind() == ErrorKind::Unavailable && error.is_outcome_unknown());
    assert_eq!(store.live_keys(), 0);
    assert_eq!(outcome(&once).await, "ran", "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_run_learns_of_the_end_however_the_run_ends() {
    for end in ["returns", "panics", "is dropped", "is lost"] {
        let store = memory();
        let (tasks, mut task) = mpsc::unbounded_channel();
        let (once, admin) = (instance(&store, "a"), store.client());
        let work = async move |run: OnceRun| {
            let task = tokio::spawn(async move { run.ended().await });
            sleep(millis(100)).await;
            assert!(!task.is_finished());
            tasks.send(task).expect("the test waits for it");
            match end {
                "returns" => return Ok::<_, String>(()),
                "panics" => panic!("a broken job"),
                "is lost" => drop(admin.break_lock(&key(), "test").await),
                _ => {}
            }
            pending().await
        };
        let running = tokio::spawn(async move { once.run(work).await });
        let task = task.recv().await.expect("it runs");
        if end == "is dropped" {
            running.abort();
        }
        let ended = timeout(TTL, task).await;
        assert!(ended.is_ok_and(|ended| ended.is_ok()), "it {end}");
        drop(running.await);
    }
}

async fn started(once: &Once) -> OnceGuard {
    match once.start().await.expect("the store answers") {
        OnceStart::Started(run) => run,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_begun_keeps_others_out_until_it_is_finished() {
    let store = memory();
    let (here, there) = (instance(&store, "here"), instance(&store, "there"));
    let run = started(&here).await;
    let token = run.fencing_token();
    let task = tokio::spawn({
        let run = OnceRun::clone(&run);
        async move { run.ended().await }
    });
    assert!(matches!(there.start().await, Ok(OnceStart::Busy)));
    run.finish(RunOutcome::Failed).await.expect("it is held");
    task.await.expect("the run has ended");

    let run = started(&there).await;
    assert!(run.fencing_token() > token);
    let last = run.last_run().expect("a failed run is recorded");
    assert_eq!(last.outcome, RunOutcome::Failed);
    drop(run);

    let run = started(&here).await;
    run.finish(RunOutcome::Ran).await.expect("it is held");
    let Ok(OnceStart::Skipped(last)) = there.start().await else {
        panic!("a finished run is due");
    };
    assert_eq!(last.label.note(), "here");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lost_its_lock_is_not_recorded_and_keeps_others_out_until_it_is_finished() {
    let store = memory();
    let (here, there) = (instance(&store, "here"), instance(&store, "there"));
    // The lock is lost by this instance alone, which might still be at work.
    let here = here.max_hold(TTL / 2);
    let run = started(&here).await;
    let lost = timeout(TTL * 2, run.lost()).await;
    lost.expect("the loss is signaled");
    assert!(matches!(there.start().await, Ok(OnceStart::Busy)));
    let error = run.finish(RunOutcome::Ran).await.expect_err("it is lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.is_outcome_unknown());
    sleep(millis(10)).await;
    let run = started(&there).await;
    assert_eq!(run.last_run(), None);
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_recorded_run_says_at_its_release_whether_it_was_held() {
    for (is_broken, expected) in [(false, Released::Clean), (true, Released::AlreadyLost)] {
        let store = memory();
        let (once, admin) = (instance(&store, "a"), store.client());
        let (guard, recorded) = started(&once).await.record(RunOutcome::Ran).await;
        recorded.expect("it is held");
        if is_broken {
            let broken = admin.break_lock(&key(), "test").await;
            broken.expect("the store answers").expect("it was held");
        }
        let released = guard.release().await;
        assert_eq!(released.expect("the store answers"), expected);
        assert_eq!(outcome(&once).await, "skipped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_or_a_finish_that_is_dropped_at_any_point_leaves_no_lock() {
    let (store, mut is_finished) = (memory(), false);
    for polls in 1..=12 {
        let once = instance(&store, "dropped");
        drop(polled(polls, once.start()).await);
        sleep(millis(1)).await;
        assert_eq!(store.live_keys(), 0, "a start dropped after {polls} polls");
        let finish = started(&once).await.finish(RunOutcome::Failed);
        is_finished = polled(polls, finish).await.is_some();
        sleep(millis(1)).await;
        assert_eq!(store.live_keys(), 0, "a finish dropped after {polls} polls");
    }
    assert!(is_finished, "more polls are needed");
}

#[tokio::test]
async fn a_period_that_is_none_is_refused() {
    let store = Memory::new();
    let locks = || Arc::new(store.client());
    let error = Once::every(locks(), JOB, millis(999)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    for name in ["", "line\nfeed"] {
        let error = Once::every(locks(), name, secs(60)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidKey);
    }
    let long = "x".repeat(LockKey::MAX_LEN);
    // With a slash it could be the key of another name.
    for key in ["", "2026/11", &long] {
        let error = Once::for_key(locks(), JOB, key).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidKey, "{key}");
    }
}

/// A record that is kept for less than two periods would let the job run again within one.
#[tokio::test(start_paused = true)]
async fn a_record_of_a_period_is_kept_longer_than_the_period() {
    let store = memory();
    let once = || instance(&store, "a").keep(secs(60));
    assert_eq!(outcome(&once()).await, "ran");
    sleep(secs(1_800)).await;
    assert_eq!(outcome(&once()).await, "skipped");

    let for_key = || job_for(&store, "2026-11-25").keep(secs(60));
    assert_eq!(outcome(&for_key()).await, "ran");
    assert_eq!(outcome(&for_key()).await, "skipped");
    sleep(secs(90)).await;
    assert_eq!(outcome(&for_key()).await, "ran", "as long as it says");
}
