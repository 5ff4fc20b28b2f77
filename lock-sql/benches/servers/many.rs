//! 64 tasks on 64 keys, leases.

use std::sync::Arc;
use std::time::Instant;

use lock_core::DistributedLockExt;

use crate::bare::{Bare, Far, Means, prepare};
use crate::figures::{middle, row};
use crate::locks::{Mode, connect, runtime};
use crate::server::{Database, Server};

const ROUNDS: usize = 15;
const TASKS: u32 = 64;
const PAIRS: u32 = 20;
const CONNECTIONS: u32 = 10;

pub(crate) fn run(database: Database) {
    let server = Server::start(database, false);
    prepare(&server);
    runtime().block_on(measure(database, &server));
}

async fn measure(database: Database, server: &Server) {
    let (url, means) = (server.url(), Means::Pool(CONNECTIONS));
    let fars = Far::open_many(database, &url, means, TASKS as usize);
    let fars: Vec<_> = fars.into_iter().map(Arc::new).collect();
    let near = Bare::open(database, &url, means).await;
    let locks = connect(&format!(
        "{url}?mode=lease&connections={CONNECTIONS}&timeout=30s"
    ))
    .await;
    let mut rates = [const { Vec::new() }; 3];
    let mut ratios = [const { Vec::new() }; 2];
    for round in 0..ROUNDS + 1 {
        let far = rate(|task| {
            let far = Arc::clone(&fars[task as usize]);
            async move {
                for _ in 0..PAIRS {
                    far.pair(Mode::Lease, task).await;
                }
            }
        });
        let far = far.await;
        let near = rate(|task| {
            let mut near = near.another();
            async move {
                for _ in 0..PAIRS {
                    near.pair(Mode::Lease, task, async || ()).await;
                }
            }
        });
        let near = near.await;
        let ours = rate(|task| {
            let locks = Arc::clone(&locks);
            async move {
                let key = format!("lock:{task}");
                for _ in 0..PAIRS {
                    let guard = locks.lock(key.as_str()).await.unwrap();
                    guard.release().await.unwrap();
                }
            }
        });
        let ours = ours.await;
        if round > 0 {
            for (all, this) in rates.iter_mut().zip([far, near, ours]) {
                all.push(this);
            }
            for (all, bare) in ratios.iter_mut().zip([far, near]) {
                all.push(ours / bare);
            }
        }
    }
    let what = format!("{} lease, 64 tasks on 64 keys", database.title());
    let [far, near, ours] = rates.map(middle);
    let [to_far, to_near] = ratios.map(middle);
    row(&what, &format!("{ours:.0} pairs/s"));
    row(
        &format!("{what}: bare statements, on a pool in a thread of its own; ratio"),
        &format!("{far:.0} pairs/s | {to_far:.3}"),
    );
    row(
        &format!("{what}: bare statements, on a pool in the tasks that measure; ratio"),
        &format!("{near:.0} pairs/s | {to_near:.3}"),
    );
}

/// Pairs per second of all tasks.
async fn rate<F: Future<Output = ()> + Send + 'static>(task: impl Fn(u32) -> F) -> f64 {
    let began = Instant::now();
    let tasks: Vec<_> = (0..TASKS).map(|n| tokio::spawn(task(n))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    f64::from(TASKS * PAIRS) / began.elapsed().as_secs_f64()
}
