//! Elections and jobs that run once, which build on what the other cases test.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polylock_coordination::{Election, Leader, Leadership, Once, RunOutcome};
use polylock_core::{Label, LockKey, Result};
use tokio::task::{JoinHandle, JoinSet};

use super::Case;
use super::case::SOON;
use super::support::eventually;
use crate::history::{Checker, FencedRegister, Recorder};

/// Asserts that it knows that it leads no more.
async fn stopped(candidate: &Election) {
    let stopped = tokio::time::timeout(SOON, candidate.stopped_leading()).await;
    stopped.expect("it does not know that it has resigned");
    assert!(!candidate.leads(), "it has resigned");
}

/// A candidate that is a process of its own.
async fn candidate(case: &Case, key: &LockKey, name: &str) -> Election {
    let election = Election::new(case.client().await, key).expect("it has all that it takes");
    election.ttl(case.ttl()).label(label(name))
}

fn label(name: &str) -> Label {
    Label::of_this_process().with_note(name)
}

async fn elected(election: &Election) -> Leadership {
    let campaign = tokio::time::timeout(SOON, election.campaign()).await;
    let campaign = campaign.expect("somebody else leads");
    campaign.expect("the candidate is elected")
}

fn campaign(election: &Election) -> JoinHandle<Result<Leadership>> {
    let election = election.clone();
    tokio::spawn(async move { election.campaign().await })
}

/// The lead of a candidate that campaigned before.
#[track_caller]
fn succeeds(
    campaign: JoinHandle<Result<Leadership>>,
    within: Duration,
) -> impl Future<Output = Leadership> {
    let place = Location::caller();
    async move {
        let next = tokio::time::timeout(within, campaign).await;
        let next = next.unwrap_or_else(|_| panic!("nobody leads at {place}"));
        let next = next.expect("no panic");
        next.unwrap_or_else(|error| panic!("not elected at {place}: {error}"))
    }
}

async fn leader(follower: &Election) -> Option<Leader> {
    let leader = follower.leader().await;
    leader.expect("the leader can be looked up")
}

/// Of several candidates that lead in turn, one leads at a time.
pub async fn one_leads_at_a_time(case: Case) {
    const TERMS: usize = 5;
    let (key, recorder) = (case.key(), Recorder::new());
    let register = Arc::new(FencedRegister::new(recorder.clone(), key.clone()));
    let leading = Arc::new(AtomicUsize::new(0));
    let mut candidates = JoinSet::new();
    for n in 0..4 {
        let candidate = candidate(&case, &key, &format!("candidate {n}")).await;
        let (register, leading) = (Arc::clone(&register), Arc::clone(&leading));
        candidates.spawn(async move {
            for _ in 0..TERMS {
                let leadership = elected(&candidate).await;
                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                assert!(candidate.leads(), "it does not know");
                let token = leadership.fencing_token();
                register.write(token).expect("a later leader has written");
                tokio::time::sleep(Duration::from_millis(2)).await;
                register.write(token).expect("a later leader has written");
                leading.fetch_sub(1, Ordering::SeqCst);
                leadership.resign().await.expect("a leader resigns");
                stopped(&candidate).await;
            }
        });
    }
    candidates.join_all().await;
    let summary = Checker::new().check(&recorder.events()).assert_clean();
    assert_eq!(summary.writes, 4 * TERMS * 2);
}

/// A leader that resigns is replaced by a candidate that waits, and not before.
pub async fn a_resignation_elects_a_candidate_that_waits(case: Case) {
    let key = case.key();
    let first = candidate(&case, &key, "first").await;
    let second = candidate(&case, &key, "second").await;
    let leadership = elected(&first).await;
    let next = campaign(&second);
    tokio::time::sleep(case.ttl() * 2).await;
    assert!(!next.is_finished() && !second.leads(), "two lead");
    assert!(leadership.guard().is_held(), "the leader was deposed");
    leadership.resign().await.expect("a leader resigns");
    let next = succeeds(next, SOON).await;
    assert!(second.leads());
    stopped(&first).await;
    next.resign().await.expect("a leader resigns");
    case.assert_free(&key).await;
}

/// A leader that died is replaced after its lease. Its lock is one like any other.
pub async fn a_leader_that_died_is_replaced(case: Case) {
    let (client, key) = (case.client().await, case.key());
    case.lock(&client, &key).await.abandon();
    let next = campaign(&candidate(&case, &key, "next").await);
    let next = succeeds(next, case.after_death()).await;
    next.resign().await.expect("a leader resigns");
}

/// Followers see the address of the present leader, and never that of an earlier one.
pub async fn followers_see_the_address_of_the_present_leader(case: Case) {
    let key = case.key();
    let first = candidate(&case, &key, "first").await;
    let second = candidate(&case, &key, "second").await;
    let follower = candidate(&case, &key, "follower").await;
    assert_eq!(leader(&follower).await, None);
    let leadership = elected(&first).await;
    let (follower, seen) = (&follower, async |name: &str, address: Option<&[u8]>| {
        let seen = leader(&follower).await;
        seen.is_some_and(|leader| {
            leader.label == label(name) && leader.address.as_deref() == address
        })
    });
    assert!(seen("first", None).await, "{:?}", leader(follower).await);
    let address = b"10.0.0.7:9000 \x00\xff";
    let proclaimed = leadership.proclaim(address).await;
    proclaimed.expect("a leader proclaims");
    // A server may get to know the token a moment later.
    let what = "the address is seen";
    eventually(what, || seen("first", Some(address))).await;

    let next = campaign(&second);
    tokio::time::sleep(Duration::from_millis(200)).await;
    leadership.resign().await.expect("a leader resigns");
    let next = succeeds(next, SOON).await;
    assert!(seen("second", None).await, "{:?}", leader(follower).await);
    let proclaimed = next.proclaim("elsewhere").await;
    proclaimed.expect("a leader proclaims");
    eventually(what, || seen("second", Some(b"elsewhere"))).await;
    next.resign().await.expect("a leader resigns");
    assert_eq!(leader(follower).await, None);
}

async fn job(case: &Case, key: &LockKey) -> Once {
    let hour = Duration::from_secs(3_600);
    let job = Once::every(case.client().await, key.as_str(), hour);
    job.expect("it has all that it takes").ttl(case.ttl())
}

async fn outcome(job: &Once) -> &'static str {
    let run = job.run(async |_| Ok::<_, String>(())).await;
    run.expect("the job can be run").as_str()
}

/// Of two clients that start a job, one runs it, and none runs it again in the same period.
pub async fn a_job_runs_once_in_its_period_on_two_clients(case: Case) {
    let key = case.key();
    let (here, there) = (job(&case, &key).await, job(&case, &key).await);
    let running = here.run(async |_| {
        assert_eq!(outcome(&there).await, "busy");
        Ok::<_, String>(())
    });
    assert_eq!(running.await.expect("the job can be run").as_str(), "ran");
    for again in [&here, &there] {
        assert_eq!(outcome(again).await, "skipped");
    }
    case.assert_free(&key).await;
    // Jobs with keys have records of their own.
    for date in ["2026-11-24", "2026-11-25"] {
        for expected in ["ran", "skipped"] {
            let job = Once::for_key(case.client().await, key.as_str(), date);
            let job = job.expect("it has all that it takes").ttl(case.ttl());
            assert_eq!(outcome(&job).await, expected);
        }
    }
}

/// A job that failed is recorded as failed, and another client may run it at once.
pub async fn a_job_that_failed_is_due_at_once(case: Case) {
    let key = case.key();
    let (here, there) = (job(&case, &key).await, job(&case, &key).await);
    let failed = here.run(async |_| Err::<(), _>("no paper")).await;
    assert_eq!(failed.expect("the job can be run").as_str(), "failed");
    let last = there.last_run().await.expect("the record can be read");
    assert_eq!(last.map(|last| last.outcome), Some(RunOutcome::Failed));
    assert_eq!(outcome(&there).await, "ran");
    assert_eq!(outcome(&here).await, "skipped");
}
