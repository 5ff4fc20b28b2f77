//! Tokens grow over the holders of all processes, also while servers fail.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use lock_testkit::sim::Rng;
use polylock_core::layers::LocalQueue;
use polylock_core::{DistributedLock, Label, Mode};
use polylock_zk::ZooKeeper;
use tokio::task::JoinSet;

use crate::support::{
    Place, SOON, granted, handed_over, ms, permits, release, request, seen, take, token, waiting,
};

fn assert_grows(tokens: &[u64]) {
    for pair in tokens.windows(2) {
        assert!(pair[1] > pair[0], "{:?} after {:?}", pair[1], pair[0]);
    }
}

async fn token_seen(locks: &ZooKeeper, name: &str) -> Option<u64> {
    let seen = seen(locks, name).await.expect("it is held");
    seen.holders[0].token.map(u64::from)
}

/// Tasks of three processes, two of them with a queue inside, take the lock in turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_over_hand_overs_here_and_grants_elsewhere() {
    let place = Place::new().await;
    let local = Arc::new(LocalQueue::new(place.client().await));
    let short = LocalQueue::new(place.client().await).with_max_handovers(3);
    let clients: [Arc<dyn DistributedLock>; 3] = [
        Arc::<LocalQueue>::clone(&local),
        Arc::new(short),
        place.client().await,
    ];
    let seed = seed();
    println!("POLYLOCK_SEED={seed}");
    let drawn = Arc::<Mutex<Vec<(usize, u64)>>>::default();
    let mut tasks = JoinSet::new();
    // On average each queue has two tasks, so that sometimes only other processes wait.
    for task in 0..7 {
        let (clients, drawn) = (clients.clone(), Arc::clone(&drawn));
        tasks.spawn(async move {
            let mut random = Rng::stream(seed, "tasks", task);
            while drawn.lock().expect("no panic").len() < 500 {
                let place = *random.pick(&[0, 0, 0, 1, 1, 2]);
                let one = request("a").with_wait(polylock_core::Wait::Forever);
                let guard = clients[place].acquire(&one).await.expect("it is granted");
                drawn.lock().expect("no panic").push((place, token(&guard)));
                if random.chance(250) {
                    tokio::time::sleep(random.millis(0, 3)).await;
                }
                if random.chance(125) {
                    drop(guard);
                } else {
                    release(guard).await;
                }
            }
        });
    }
    tasks.join_all().await;
    let drawn = drawn.lock().expect("no panic").clone();
    assert_grows(&drawn.iter().map(|(_, token)| *token).collect::<Vec<_>>());
    let changes = drawn.windows(2).filter(|pair| pair[0].0 != pair[1].0);
    let changes = changes.count();
    let all = drawn.len();
    println!("{all} tokens, {changes} changes between clients");
    assert!(changes > 30 && changes < 450, "{changes} changes of {all}");
    assert!(local.shutdown(SOON).await);
}

fn seed() -> u64 {
    let given = std::env::var("POLYLOCK_SEED").ok();
    let given = given.and_then(|seed| seed.parse().ok());
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    given.unwrap_or_else(|| u64::from(since.map_or(0, |since| since.subsec_nanos())))
}

#[tokio::test]
async fn holders_of_one_time_have_tokens_of_their_own() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.client().await);
    for (name, mode) in [("a", Mode::Shared), ("b", permits(8))] {
        let one = request(name).with_mode(mode);
        let before = take(&locks, name).await;
        let waiters: Vec<_> = (0..8)
            .map(|n| waiting([&locks, &other][n % 2], one.clone()))
            .collect();
        place.contenders(name, 9).await;
        let mut tokens = vec![token(&before)];
        release(before).await;
        let mut guards = Vec::new();
        for waiter in waiters {
            guards.push(granted(waiter).await);
        }
        tokens.extend(guards.iter().map(token));
        tokens.sort();
        assert_grows(&tokens);
        let next = place.waiter(&other, request(name)).await;
        for guard in guards {
            release(guard).await;
        }
        let next = granted(next).await;
        assert!(token(&next) > tokens[8]);
        release(next).await;
    }
}

#[tokio::test]
async fn a_reader_that_was_a_writer_keeps_its_token_and_a_writer_after_it_has_a_larger_one() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.client().await);
    let mut first = take(&locks, "a").await;
    let writer_token = token(&first);
    let shared = || request("a").with_mode(Mode::Shared);
    let reader = place.waiter(&other, shared()).await;
    first.downgrade().await.expect("it can be downgraded");
    assert_eq!(token(&first), writer_token);
    let reader = reader.await.expect("no panic").expect("readers share it");
    assert_eq!(token_seen(&locks, "a").await, Some(writer_token));
    let late = locks.acquire(&shared()).await.expect("readers share it");
    assert_grows(&[writer_token, token(&reader), token(&late)]);
    let next = place.waiter(&other, request("a")).await;
    let last = token(&late);
    for guard in [first, reader, late] {
        release(guard).await;
    }
    let next = granted(next).await;
    assert!(token(&next) > last);
    release(next).await;
}

#[tokio::test]
async fn the_token_of_a_holder_is_seen_where_the_ensemble_knows_it() {
    let place = Place::new().await;
    let locks = place.client().await;
    let queue = Arc::new(LocalQueue::new(Arc::<ZooKeeper>::clone(&locks)));
    let began = SystemTime::now() - ms(100);
    let guard = queue.acquire(&request("a")).await.expect("it is granted");
    let info = seen(&locks, "a").await.expect("it is held");
    let holder = &info.holders[0];
    let known = (holder.token, holder.time_left);
    assert_eq!(known, (guard.fencing_token(), None));
    let since = holder.since.expect("it was created");
    assert!(since >= began && since <= SystemTime::now() + ms(100));
    // Only the contender itself knows which list showed that it holds the lock.
    let next = place.waiter(&locks, request("a")).await;
    assert_eq!(token_seen(&locks, "a").await, None);
    release(guard).await;
    let next = granted(next).await;
    assert_eq!(token_seen(&locks, "a").await, None);
    release(next).await;
    // After hand-overs inside a process it is that of the first.
    let one = request("a").with_label(Label::of_this_process().with_note("first"));
    let guard = queue.acquire(&one).await.expect("it is granted");
    let first = token(&guard);
    let guard = handed_over(&queue, handed_over(&queue, guard).await).await;
    assert!(token(&guard) > first);
    assert_eq!(token_seen(&locks, "a").await, Some(first));
    let info = seen(&locks, "a").await.expect("it is held");
    assert_eq!(info.holders[0].label.note(), "first");
    release(guard).await;
}
