//! 64 tasks on 64 keys in one session.

use std::time::Instant;

use lock_core::DistributedLockExt;

use crate::bare::Bare;
use crate::{connect, middle, row, runtime, server};

const ROUNDS: usize = 15;
const TASKS: usize = 64;
const PAIRS: usize = 40;

pub(crate) fn run() {
    let server = server();
    runtime().block_on(async {
        let bare = Bare::connect(&server);
        let locks = connect(&server, "").await;
        for task in 0..TASKS {
            bare.directory(&format!("/bare/{task}")).await;
        }
        let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
        for round in 0..ROUNDS + 1 {
            let began = Instant::now();
            let tasks: Vec<_> = (0..TASKS)
                .map(|task| {
                    let bare = bare.clone();
                    tokio::spawn(async move {
                        let directory = format!("/bare/{task}");
                        for _ in 0..PAIRS {
                            bare.pair(&directory).await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            let bare_rate = (TASKS * PAIRS) as f64 / began.elapsed().as_secs_f64();
            let began = Instant::now();
            let tasks: Vec<_> = (0..TASKS)
                .map(|task| {
                    let locks = std::sync::Arc::clone(&locks);
                    tokio::spawn(async move {
                        let key = format!("lock:{task}");
                        for _ in 0..PAIRS {
                            let guard = locks.lock(key.as_str()).await.unwrap();
                            guard.release().await.unwrap();
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            let lock_rate = (TASKS * PAIRS) as f64 / began.elapsed().as_secs_f64();
            if round > 0 {
                ratios.push(lock_rate / bare_rate);
                ours.push(lock_rate);
                theirs.push(bare_rate);
            }
        }
        row(
            "64 tasks on 64 keys, bare requests",
            &format!("{:.0} pairs/s", middle(theirs)),
        );
        row(
            "64 tasks on 64 keys",
            &format!("{:.0} pairs/s", middle(ours)),
        );
        row("ratio", &format!("{:.3}", middle(ratios)));
    });
}
