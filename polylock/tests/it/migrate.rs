//! Fleets that move between real servers, one process after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_testkit::servers::{PostgresServer, RedisOptions, RedisServer, ZooKeeperServer};
use polylock::Fencing;
use polylock::prelude::*;
use tokio::sync::Barrier;

const PROCESSES: usize = 4;
const TASKS: usize = 2;
const ROUNDS: usize = 12;

/// What a process is connected to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Old,
    Both,
    New,
}

/// The resource that the lock protects: a flag for its user, and the tokens in the order of the holders.
#[derive(Default)]
struct Shop {
    is_inside: AtomicBool,
    tokens: Mutex<Vec<(Step, Option<u64>)>>,
}

impl Shop {
    /// Enters often, from several tasks, whose leases pass from hand to hand.
    async fn visit(self: &Arc<Self>, step: Step, locks: &Arc<dyn DistributedLock>) {
        let tasks = (0..TASKS).map(|_| {
            let (shop, locks) = (Arc::clone(self), Arc::clone(locks));
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = locks.lock("k").await.expect("the servers are well");
                    assert!(!shop.is_inside.swap(true, Ordering::SeqCst), "two holders");
                    let token = guard.fencing_token().map(|token| token.value());
                    shop.tokens
                        .lock()
                        .expect("not poisoned")
                        .push((step, token));
                    tokio::task::yield_now().await;
                    assert!(guard.is_held());
                    shop.is_inside.store(false, Ordering::SeqCst);
                    drop(guard);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no task sees two holders");
        }
    }
}

/// Processes move independently, but none takes the second step before all have taken the first.
async fn move_fleet(old: String, new: String) -> Vec<(Step, Option<u64>)> {
    let shop = Arc::new(Shop::default());
    let step = Arc::new(Barrier::new(PROCESSES));
    let processes = (0..PROCESSES).map(|process| {
        let (old, new) = (old.clone(), new.clone());
        let (shop, step) = (Arc::clone(&shop), Arc::clone(&step));
        tokio::spawn(async move {
            for _ in 0..=usize::from(process % 2 == 0) {
                let connected = polylock::connect(&old).await;
                shop.visit(Step::Old, &connected.expect("it is there"))
                    .await;
            }
            let both = polylock::compiled_in().connect_migrating(&old, &new).await;
            let both = both.expect("both are there");
            shop.visit(Step::Both, &both).await;
            step.wait().await;
            if process % 2 == 1 {
                shop.visit(Step::Both, &both).await;
            }
            let connected = polylock::connect(&new).await;
            shop.visit(Step::New, &connected.expect("it is there"))
                .await;
            assert!(both.shutdown(Duration::from_secs(10)).await);
        })
    });
    for process in processes.collect::<Vec<_>>() {
        process.await.expect("no process fails");
    }
    let tokens = shop.tokens.lock().expect("not poisoned").clone();
    assert_eq!(tokens.len(), PROCESSES * TASKS * ROUNDS * 4);
    tokens
}

/// The tokens of the steps with the new backend are of that one.
fn assert_increasing(tokens: &[(Step, Option<u64>)]) {
    for is_old in [true, false] {
        let of_steps = tokens
            .iter()
            .filter(|(step, _)| (*step == Step::Old) == is_old);
        let tokens: Vec<_> = of_steps.map(|(_, token)| token.expect("has one")).collect();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    }
}

fn redis() -> RedisServer {
    RedisServer::start(RedisOptions::default())
}

/// Its URL, with time for replies: a busy machine may stall for longer than the default.
fn patient(redis: &RedisServer) -> String {
    format!("{}?timeout=10s", redis.url())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_redis_to_postgres_with_tokens_that_grow() {
    let redis = redis();
    let old = patient(&redis);
    let postgres = PostgresServer::shared().database();
    let new = format!("{postgres}?mode=lease");
    let both = polylock::compiled_in().connect_migrating(&old, &new).await;
    let capabilities = both.expect("both are there").capabilities();
    assert_eq!(capabilities.fencing, Fencing::BestEffort);
    assert_increasing(&move_fleet(old, new).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_redis_to_zookeeper_without_tokens_meanwhile() {
    let redis = redis();
    let zookeeper = ZooKeeperServer::shared();
    let tokens = move_fleet(patient(&redis), zookeeper.url()).await;
    for (step, token) in tokens {
        // Its numbers are no clock.
        assert_eq!(token.is_none(), step == Step::Both, "{step:?}: {token:?}");
    }
}
