//! Candidates, leaders and followers.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use polylock_coordination::{
    CoordinationEvent, CoordinationObserver, Election, Leader, Once, Term,
};
use polylock_core::engine::VirtualClock;
use polylock_core::layers::{LocalQueue, Migrate};
use polylock_core::memory::{Fault, Memory, Reachable, Request};
use polylock_core::{DistributedLock, ErrorKind, Fencing, LostReason};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    NAME, Steered, TTL, candidate, election, has_stopped, key, label, memory, millis, polled,
    polled_by_broken, secs, suspendable,
};

fn address(leader: Option<&Leader>) -> Option<&[u8]> {
    leader?.address.as_deref()
}

#[tokio::test(start_paused = true)]
async fn a_campaign_dropped_after_each_poll_leaves_nothing() {
    let store = memory();
    let held = candidate(&store, "holder").campaign().await.unwrap();
    for polls in 1..=4 {
        let waiting = candidate(&store, "waits");
        assert!(polled(polls, waiting.campaign()).await.is_none());
        sleep(millis(1)).await;
        assert_eq!(store.waiters(&key()), 0, "after {polls} polls");
    }
    held.resign().await.unwrap();
    let mut done = false;
    for polls in 1..=4 {
        let alone = candidate(&store, "alone");
        done |= polled(polls, alone.campaign()).await.is_some();
        sleep(millis(1)).await;
        assert!(has_stopped(&alone));
        assert_eq!(store.live_keys(), 0, "after {polls} polls");
    }
    assert!(done, "a free lock was granted");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_cannot_be_proclaimed_is_an_error() {
    let store = memory();
    let (here, there) = (candidate(&store, "a"), candidate(&store, "b"));
    let first = here.campaign().await.unwrap();
    let long = [b'a'; Election::MAX_ADDRESS_LEN + 1];
    let error = first.proclaim(long).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);

    store.faults().set_reachable(Reachable::Cut);
    let error = first.proclaim("x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(first.guard().is_held() && here.leads());
    store.faults().set_reachable(Reachable::Connected);
    store.faults().plan(Request::Record, Fault::LostReply);
    let error = first.proclaim("w").await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.is_outcome_unknown());
    let leader = there.leader().await.unwrap();
    assert_eq!(address(leader.as_ref()), Some(&b"w"[..]), "it was written");
    first.proclaim("x").await.unwrap();
    let leader = there.leader().await.unwrap();
    assert_eq!(address(leader.as_ref()), Some(&b"x"[..]), "in its place");

    // The server ended the lease, which the leader has not noticed yet.
    store.expire(&key());
    let second = there.campaign().await.unwrap();
    second.proclaim("y").await.unwrap();
    assert!(first.guard().is_held());
    let error = first.proclaim("x").await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Stolen));
    let leader = there.leader().await.unwrap();
    assert_eq!(address(leader.as_ref()), Some(&b"y"[..]));

    let lost = timeout(TTL * 2, first.lost()).await;
    lost.expect("the loss is signaled");
    let before = store.faults().requests();
    let error = first.proclaim("x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(store.faults().requests(), before, "nothing is sent");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_has_resigned_proclaims_nothing() {
    let store = memory();
    let here = candidate(&store, "a");
    let first = here.campaign().await.unwrap();
    let term = Term::clone(&first);
    let slow = Fault::LateReply(secs(1));
    store.faults().plan(Request::Record, slow);
    let proclaiming = tokio::spawn({
        let term = term.clone();
        async move { term.proclaim("x").await }
    });
    sleep(millis(1)).await;
    first.resign().await.unwrap();
    let error = proclaiming.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.lost_reason()), (ErrorKind::Lost, None));

    // Nor does it in the next term of the same candidate.
    let second = here.campaign().await.unwrap();
    let before = store.faults().requests();
    let error = term.proclaim("x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(store.faults().requests(), before, "nothing is sent");
    assert_eq!(here.leader().await.unwrap().unwrap().address, None);
    second.proclaim("y").await.unwrap();
}

/// As a task of a runtime that is gone.
#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_woken_costs_no_term() {
    let store = memory();
    let here = candidate(&store, "a");
    let (first, second) = (here.clone(), here.clone());
    let _beginning = polled_by_broken(async move { first.started_leading().await });
    let behind = tokio::spawn({
        let here = here.clone();
        async move { here.started_leading().await }
    });
    tokio::task::yield_now().await;
    let leadership = here.campaign().await.unwrap();
    assert!(here.leads());
    behind.await.unwrap();
    let _end = polled_by_broken(async move { second.stopped_leading().await });
    drop(leadership);
    assert!(!here.leads() && has_stopped(&here));
    let next = candidate(&store, "b");
    let elected = timeout(secs(1), next.campaign()).await;
    let _leads = elected.expect("the lock is free").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_of_the_leader_learns_of_the_end_of_its_term() {
    let store = memory();
    let here = candidate(&store, "a");
    for end in ["dropped", "lost", "resigned"] {
        let leadership = here.campaign().await.unwrap();
        let [first, second] = [(); 2].map(|()| Term::clone(&leadership));
        // The first task cannot be woken, which costs the second nothing.
        let _broken = polled_by_broken(async move { first.ended().await });
        let task = tokio::spawn(async move { second.ended().await });
        sleep(secs(1)).await;
        assert!(!task.is_finished() && here.leads());
        match end {
            "dropped" => drop(leadership),
            "lost" => {
                store.expire(&key());
                let lost = timeout(TTL * 2, leadership.lost()).await;
                lost.expect("the loss is signaled");
                assert!(!here.leads());
                timeout(millis(1), leadership.ended()).await.expect("lost");
            }
            _ => drop(leadership.resign().await),
        }
        let ended = timeout(millis(1), task).await;
        assert!(ended.is_ok_and(|ended| ended.is_ok()), "{end}");
        assert!(!here.leads(), "{end}");
        sleep(millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_observes_changes_and_no_failure() {
    let store = memory();
    let (here, there) = (candidate(&store, "a"), candidate(&store, "b"));
    let mut seen = candidate(&store, "c").observe();
    store.faults().set_reachable(Reachable::Cut);
    assert!(timeout(secs(5), seen.next()).await.is_err());
    store.faults().set_reachable(Reachable::Connected);
    assert_eq!(seen.next().await, Some(None));

    let first = here.campaign().await.unwrap();
    let leader = seen.next().await.flatten().unwrap();
    assert_eq!((leader.label, leader.address), (label("a"), None));
    first.proclaim("x").await.unwrap();
    let leader = seen.next().await.unwrap();
    assert_eq!(address(leader.as_ref()), Some(&b"x"[..]));

    store.faults().set_reachable(Reachable::Cut);
    let cannot_know = timeout(secs(3), seen.next()).await;
    assert!(cannot_know.is_err(), "{cannot_know:?}");
    store.faults().set_reachable(Reachable::Connected);
    assert!(timeout(secs(30), seen.next()).await.is_err(), "no change");

    let (second, _) = tokio::join!(there.campaign(), first.resign());
    let leader = seen.next().await.flatten().unwrap();
    assert_eq!((leader.label, leader.address), (label("b"), None));
    drop(second);
    assert_eq!(seen.next().await, Some(None));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_elected_between_two_requests_is_seen_with_its_address() {
    let store = memory();
    let (here, there) = (candidate(&store, "a"), candidate(&store, "b"));
    let first = here.campaign().await.unwrap();
    first.proclaim("x").await.unwrap();
    let (elected, election_of_b) = oneshot::channel();
    let change = async move {
        first.resign().await.unwrap();
        let second = there.campaign().await.unwrap();
        second.proclaim("y").await.unwrap();
        elected.send(second).unwrap();
    };
    let mut locks = Steered::new(&store);
    locks.before_record = Mutex::new(Some(Box::pin(change)));
    let follower = Election::new(Arc::new(locks), NAME).unwrap();
    let leader = follower.leader().await.unwrap().unwrap();
    let second = election_of_b.await.unwrap();
    assert_eq!(address(Some(&leader)), Some(&b"y"[..]));
    assert_eq!(leader.token, Some(second.fencing_token()));
    assert_eq!(leader.label, label("b"));
}

/// ZooKeeper does not know the token of a leader that has waited.
#[tokio::test(start_paused = true)]
async fn a_follower_observes_the_next_term_of_a_leader_whose_token_is_unknown() {
    let store = memory();
    let here = candidate(&store, "a");
    let locks = Arc::new(Steered::new(&store));
    let follower = Election::new(Arc::clone(&locks) as Arc<dyn DistributedLock>, NAME).unwrap();
    let mut seen = follower.observe();
    let first = here.campaign().await.unwrap();
    let leader = seen.next().await.flatten().unwrap();
    assert_eq!(leader.token, Some(first.fencing_token()));

    first.resign().await.unwrap();
    let second = here.campaign().await.unwrap();
    locks.hides_tokens.store(true, Ordering::SeqCst);
    let changed = timeout(secs(30), seen.next()).await;
    let leader = changed.expect("another term").flatten().unwrap();
    assert_eq!((leader.label, leader.token), (label("a"), None));

    locks.hides_tokens.store(false, Ordering::SeqCst);
    assert!(timeout(secs(30), seen.next()).await.is_err(), "no change");
    assert!(second.leads());
}

#[tokio::test(start_paused = true)]
async fn a_follower_sends_two_requests_a_second() {
    let store = memory();
    let leader = candidate(&store, "a").ttl(secs(600));
    let leadership = leader.campaign().await.unwrap();
    let mut seen = candidate(&store, "b").observe();
    assert!(seen.next().await.is_some());
    let before = store.faults().requests();
    // Less than a third of the ttl: the leader renews nothing.
    assert!(timeout(secs(60), seen.next()).await.is_err());
    let sent = store.faults().requests() - before;
    assert!((118..=120).contains(&sent), "{sent} requests in a minute");
    drop(leadership);
}

#[tokio::test(start_paused = true)]
async fn a_leader_stops_leading_when_the_lease_ends_while_renewals_hang() {
    let store = memory();
    let (here, there) = (candidate(&store, "a"), candidate(&store, "b"));
    let leadership = here.campaign().await.unwrap();
    for _ in 0..100 {
        store.faults().plan(Request::Renew, Fault::Silence);
    }
    let next = tokio::spawn(async move { there.campaign().await });
    let until = leadership.guard().valid_until().unwrap();
    here.stopped_leading().await;
    assert!(Instant::now() <= until + millis(1) && !here.leads());
    assert!(!next.is_finished(), "the server has not let it go");
    store.faults().clear();
    let next = next.await.unwrap().unwrap();
    assert!(next.fencing_token() > leadership.fencing_token());
    assert!(Instant::now() >= until + TTL / 20, "a tenth is kept back");
}

/// The engine's thread signals it, even if the program blocks its own threads.
#[test]
fn a_leader_stops_leading_while_the_runtime_is_blocked() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, ttl) = (Memory::new(), secs(2));
        let election = election(store.client(), "a").ttl(ttl);
        let leadership = election.campaign().await.unwrap();
        store.faults().set_reachable(Reachable::Cut);
        assert!(election.leads());
        let elsewhere = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.unwrap().block_on(election.stopped_leading());
        });
        std::thread::sleep(ttl + secs(1));
        assert!(elsewhere.is_finished());
        drop(leadership);
    });
}

/// Suspends the machine beyond the lease of the leader that was elected.
#[derive(Debug)]
struct SuspendsTheElected {
    clock: Arc<VirtualClock>,
    election: OnceLock<Election>,
    /// Whether it leads, before and after.
    started: OnceLock<[bool; 2]>,
}

impl CoordinationObserver for SuspendsTheElected {
    fn happened(&self, event: &CoordinationEvent<'_>) {
        if let (CoordinationEvent::Elected { .. }, Some(election)) = (event, self.election.get()) {
            let has_started = || election.started_leading().now_or_never().is_some();
            let before = has_started();
            self.clock.suspend(TTL);
            let started = self.started.set([before, has_started()]);
            started.expect("it is elected once");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_term_whose_lease_has_ended_does_not_start() {
    let (engine, clock) = suspendable();
    let suspends = Arc::new(SuspendsTheElected {
        clock,
        election: OnceLock::new(),
        started: OnceLock::new(),
    });
    let observer = Arc::<SuspendsTheElected>::clone(&suspends);
    let here = election(Memory::with_engine(engine), "a").observer(observer);
    suspends.election.set(here.clone()).unwrap();
    let leadership = here.campaign().await.unwrap();
    assert_eq!(suspends.started.get(), Some(&[true, false]));
    assert!(!here.leads() && !leadership.guard().is_held());
    here.stopped_leading().await;
}

/// Polls a task that waits for the first term while the lease of that term is over already.
#[derive(Default)]
struct PollsAtTheFirst {
    clock: Option<Arc<VirtualClock>>,
    election: OnceLock<Election>,
    waits: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl fmt::Debug for PollsAtTheFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PollsAtTheFirst")
    }
}

impl CoordinationObserver for PollsAtTheFirst {
    fn happened(&self, event: &CoordinationEvent<'_>) {
        let mut waits = self.waits.lock().expect("no panic");
        if let (CoordinationEvent::Elected { .. }, None) = (event, &*waits) {
            let clock = self.clock.as_ref().expect("it is set");
            clock.suspend(TTL);
            let election = self.election.get().expect("it is set").clone();
            let mut started = async move { election.started_leading().await }.boxed();
            let is_pending = (&mut started).now_or_never().is_none();
            *waits = is_pending.then_some(started);
        }
    }
}

/// A task that is late sees only the last of several changes.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_through_a_term_that_never_started_sees_the_next_one() {
    let (engine, clock) = suspendable();
    let observer = Arc::new(PollsAtTheFirst {
        clock: Some(clock),
        ..PollsAtTheFirst::default()
    });
    let polls = Arc::<PollsAtTheFirst>::clone(&observer);
    let here = election(Memory::with_engine(engine), "a").observer(polls);
    observer.election.set(here.clone()).unwrap();
    drop(here.campaign().await.unwrap());
    let next = here.campaign().await.unwrap();
    let waits = observer.waits.lock().unwrap().take();
    let started = waits.expect("it waits through the first term");
    timeout(secs(1), started)
        .await
        .expect("the next one starts");
    assert!(next.guard().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_former_term_does_not_end_the_next_one() {
    let store = memory();
    let here = candidate(&store, "a");
    let first = here.campaign().await.unwrap();
    store.expire(&key());
    let lost = timeout(TTL * 2, first.lost()).await;
    lost.expect("the loss is signaled");
    assert!(has_stopped(&here));
    let second = here.campaign().await.unwrap();
    assert!(here.leads() && second.leads() && !first.leads());
    drop(first);
    assert!(here.leads() && second.guard().is_held());
    // The lock of a term that has resigned is not lost.
    let former = Term::clone(&second);
    second.resign().await.unwrap();
    assert!(has_stopped(&here) && !former.leads());
    let third = here.campaign().await.unwrap();
    assert!(third.leads() && !former.leads());
    third.resign().await.unwrap();
}

/// The server shows each leader by its own label and token, also those of one process.
#[tokio::test(start_paused = true)]
async fn candidates_of_one_process_are_elected_by_the_server() {
    let store = memory();
    let queue = LocalQueue::new(Arc::new(store.client()));
    let of_process = |name: &str| {
        let election = Election::new(Arc::new(queue.clone()), NAME).unwrap();
        election.ttl(TTL).label(label(name))
    };
    let (here, there) = (of_process("a"), of_process("b"));
    let first = here.campaign().await.unwrap();
    first.proclaim("x").await.unwrap();
    let (second, released) = tokio::join!(there.campaign(), first.resign());
    released.unwrap();
    let second = second.unwrap();
    let leader = here.leader().await.unwrap().unwrap();
    assert_eq!((leader.label, leader.address), (label("b"), None));
    assert_eq!(leader.token, Some(second.fencing_token()));
    second.proclaim("y").await.unwrap();
    let leader = here.leader().await.unwrap();
    assert_eq!(address(leader.as_ref()), Some(&b"y"[..]));

    // A candidate that gives up leaves the queue of the server.
    let waiting = here.campaign();
    assert!(timeout(secs(1), waiting).await.is_err());
    let last = of_process("c");
    let third = tokio::spawn(async move { last.campaign().await });
    sleep(millis(10)).await;
    second.resign().await.unwrap();
    let third = third.await.unwrap().unwrap();
    let leader = there.leader().await.unwrap().unwrap();
    assert_eq!(leader.label, label("c"));
    drop(third);
}

#[tokio::test]
async fn locks_without_tokens_or_administration_are_refused_before_anything_is_sent() {
    let (old, new) = (Memory::new(), Memory::new());
    let both = Migrate::new(Arc::new(old.client()), Arc::new(new.client()));
    let mut without_tokens = Steered::new(&old);
    without_tokens.fencing = Fencing::Unavailable;
    let weak: [Arc<dyn DistributedLock>; 2] = [Arc::new(both), Arc::new(without_tokens)];
    for (locks, lacking) in weak.into_iter().zip(["administration", "tokens"]) {
        let refused = [
            Election::new(Arc::clone(&locks), NAME).map(drop),
            Once::every(Arc::clone(&locks), NAME, secs(60)).map(drop),
            Once::for_key(Arc::clone(&locks), NAME, "2026-11-25").map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains(lacking), "{error}");
        }
    }
    assert_eq!(old.faults().requests() + new.faults().requests(), 0);
    let error = Election::new(Arc::new(old.client()), "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidKey);
}
