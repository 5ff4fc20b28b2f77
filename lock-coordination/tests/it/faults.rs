//! Leaders that crash, freeze or are cut off, and the other candidates' view of it.

use polylock_coordination::Election;
use polylock_core::admin::LockAdmin as _;
use polylock_core::engine::{Entropy, SeededEntropy};
use polylock_core::memory::{Fault, Memory, Reachable, Request};
use polylock_core::{ErrorKind, LostReason};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    Diary, Machine, TTL, candidate, election, has_stopped, key, memory, millis, secs,
};

/// Lets a process lead whenever it can.
fn leads(machine: &Machine, election: &Election, diary: &Diary) -> JoinHandle<()> {
    let (election, diary) = (election.clone(), diary.clone());
    machine.run(async move {
        let work = |term| {
            let diary = diary.clone();
            async move {
                diary.lead(term).await;
                Ok::<_, String>(())
            }
        };
        drop(election.lead(work).await);
    })
}

#[tokio::test(start_paused = true)]
async fn a_crashed_leader_is_replaced_within_one_ttl() {
    for after in [0, 3, 3_333, 9_000, 31_234] {
        let (store, machine, diary) = (memory(), Machine::new(), Diary::new());
        let dying = election(machine.client(&store), "a");
        drop(leads(&machine, &dying, &diary));
        sleep(millis(1)).await;
        assert!(dying.leads());
        let next = tokio::spawn(async move { candidate(&store, "b").campaign().await });
        sleep(millis(after)).await;
        machine.freeze();
        let crashed = Instant::now();
        let next = timeout(TTL * 2, next).await.expect("it is elected");
        let took = crashed.elapsed();
        assert!(took <= TTL + millis(1), "elected {took:?} after the crash");
        next.unwrap().unwrap().resign().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_leader_does_nothing_after_it_goes_on() {
    let (store, machine, diary) = (memory(), Machine::new(), Diary::new());
    let frozen = election(machine.client(&store), "a");
    let leading = leads(&machine, &frozen, &diary);
    sleep(secs(5)).await;
    machine.freeze();
    let next = candidate(&store, "b").campaign().await.unwrap();
    let writes = diary.check().writes;
    assert!(writes > 25);
    machine.thaw();
    sleep(secs(5)).await;
    let summary = diary.check();
    assert_eq!((summary.writes, summary.stale_writes), (writes, 0));
    assert!(has_stopped(&frozen));
    assert!(next.guard().is_held());
    leading.abort();
}

/// A stopped clock hides the loss from the lock; the tokens protect the resource then.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_clock_stood_replaces_no_address_and_no_data() {
    let (store, machine) = (memory(), Machine::new());
    let frozen = election(machine.client(&store), "a");
    let first = machine.run(async move { frozen.campaign().await });
    let first = first.await.unwrap().unwrap();
    first.proclaim("a").await.unwrap();
    machine.freeze_with_clock();
    let there = candidate(&store, "b");
    let second = there.campaign().await.unwrap();
    // It has proclaimed nothing yet, and what the former one says does not count.
    assert!(first.guard().is_held(), "by its clock");
    first.proclaim("still a").await.unwrap();
    let leader = there.leader().await.unwrap().unwrap();
    assert_eq!(leader.address, None);
    second.proclaim("b").await.unwrap();
    let error = first.proclaim("still a").await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Stolen));
    let leader = there.leader().await.unwrap().unwrap();
    assert_eq!(leader.address.as_deref(), Some(&b"b"[..]));
    assert!(first.fencing_token() < second.fencing_token());
    machine.thaw();
    let renewed = first.guard().renew().await.unwrap_err();
    assert_eq!(renewed.kind(), ErrorKind::Lost);
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    Crash,
    Cut,
    Freeze,
    LostReplies,
    Resign,
    Silence,
    TakenAway,
}

/// Runs four processes for a while, in which something happens again and again.
async fn troubled(seed: u64, troubles: &[Trouble]) -> polylock_history::Summary {
    let (store, diary, entropy) = (memory(), Diary::new(), SeededEntropy::new(seed));
    let dice = |sides: usize| {
        let mut bytes = [0; 8];
        entropy.fill(&mut bytes);
        usize::try_from(u64::from_le_bytes(bytes) % 1_000_003).expect("it is small") % sides
    };
    let start = || {
        let machine = Machine::new();
        let election = election(machine.client(&store), "one of four");
        let task = leads(&machine, &election, &diary);
        (machine, election, task)
    };
    let mut processes: Vec<_> = (0..4).map(|_| start()).collect();
    for _ in 0..40 {
        sleep(millis(dice(15_000) as u64)).await;
        let leader = processes
            .iter()
            .position(|(_, election, _)| !has_stopped(election));
        let victim = leader.filter(|_| dice(4) > 0).unwrap_or_else(|| dice(4));
        let long = millis(dice(30_000) as u64);
        let (machine, _, task) = &processes[victim];
        match troubles[dice(troubles.len())] {
            Trouble::Crash => {
                machine.freeze();
                processes[victim] = start();
            }
            Trouble::Cut => {
                store.faults().set_reachable(Reachable::Cut);
                sleep(long).await;
                store.faults().set_reachable(Reachable::Connected);
            }
            Trouble::Freeze => {
                machine.freeze();
                sleep(long).await;
                machine.thaw();
            }
            Trouble::LostReplies => {
                for request in [Request::Acquire, Request::Release, Request::Renew] {
                    let fault = [Fault::LostReply, Fault::LostRequest, Fault::Duplicated][dice(3)];
                    store.faults().plan(request, fault);
                }
            }
            Trouble::Resign => {
                task.abort();
                processes[victim] = start();
            }
            Trouble::Silence => {
                for _ in 0..=dice(20) {
                    store.faults().plan(Request::Renew, Fault::Silence);
                }
            }
            Trouble::TakenAway => take_away(&store, &diary, dice(2) == 0).await,
        }
    }
    diary.check()
}

async fn take_away(store: &Memory, diary: &Diary, is_noticed: bool) {
    diary.interfered();
    if is_noticed {
        let broken = store.break_lock(&key(), "test").await;
        broken.expect("the store answers");
    } else {
        store.expire(&key());
    }
}

const NOT_TAKEN: [Trouble; 6] = [
    Trouble::Crash,
    Trouble::Cut,
    Trouble::Freeze,
    Trouble::LostReplies,
    Trouble::Resign,
    Trouble::Silence,
];

#[tokio::test(start_paused = true)]
async fn one_leads_and_works_at_a_time_whatever_happens_to_processes_and_network() {
    for seed in 1..=6 {
        let summary = troubled(seed, &NOT_TAKEN).await;
        assert!(
            summary.grants > 20 && summary.writes > 500,
            "{seed}: {summary:?}"
        );
        assert_eq!(
            summary.stale_writes, 0,
            "{seed}: a leader has worked beyond its term"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_taken_away_moves_the_lead_and_stale_writes_are_refused() {
    let mut troubles = vec![Trouble::TakenAway; 6];
    troubles.extend(NOT_TAKEN);
    let mut stale = 0;
    for seed in 1..=6 {
        let summary = troubled(seed, &troubles).await;
        assert!(summary.grants > 20, "{seed}: {summary:?}");
        stale += summary.stale_writes;
    }
    assert!(stale > 0, "the tokens were not needed");
}
