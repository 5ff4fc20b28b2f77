//! 64 tasks on 64 keys over one connection.

use std::time::{Duration, Instant};

use lock_core::DistributedLockExt;

use crate::bare::Bare;
use crate::{connect, middle, processor_time, row, runtime, server};

const ROUNDS: usize = 15;
const TASKS: usize = 64;
const PAIRS: usize = 200;

pub(crate) fn run() {
    let server = server();
    runtime().block_on(async {
        let bare = Bare::connect(&server).await;
        let locks = connect(&server, "").await;
        let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
        let mut spent = [[Duration::ZERO; 2]; 2];
        let spends = || [std::process::id(), server.pid()].map(processor_time);
        for round in 0..ROUNDS + 1 {
            let (began, before) = (Instant::now(), spends());
            let tasks: Vec<_> = (0..TASKS)
                .map(|task| {
                    let mut bare = bare.clone();
                    tokio::spawn(async move {
                        let key = format!("bare:{task}");
                        for _ in 0..PAIRS {
                            bare.pair(&key, "0123456789abcdef0123456789abcdef").await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            let bare_rate = (TASKS * PAIRS) as f64 / began.elapsed().as_secs_f64();
            let between = spends();
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
            let after = spends();
            if round > 0 {
                for n in 0..2 {
                    spent[0][n] += between[n] - before[n];
                    spent[1][n] += after[n] - between[n];
                }
                ratios.push(lock_rate / bare_rate);
                ours.push(lock_rate);
                theirs.push(bare_rate);
            }
        }
        row(
            "64 tasks on 64 keys, bare commands",
            &format!("{:.0} pairs/s", middle(theirs)),
        );
        row(
            "64 tasks on 64 keys",
            &format!("{:.0} pairs/s", middle(ours)),
        );
        row("ratio", &format!("{:.3}", middle(ratios)));
        for (whose, [client, server]) in ["bare", "ours"].iter().zip(spent) {
            let each = |time: Duration| time / (ROUNDS * TASKS * PAIRS) as u32;
            let text = format!("client {:.1?}, server {:.1?}", each(client), each(server));
            row(&format!("processor time of a pair, {whose}"), &text);
        }
    });
}
