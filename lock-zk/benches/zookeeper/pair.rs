//! One task that takes and gives back a free lock.

use std::time::{Duration, Instant};

use lock_core::DistributedLockExt;

use crate::bare::Bare;
use crate::{connect, median, middle, row, runtime, server};

const ROUNDS: usize = 20;
const PAIRS: usize = 200;
const KEYS: usize = 20;

pub(crate) fn run() {
    let server = server();
    runtime().block_on(async {
        let bare = Bare::connect(&server);
        let locks = connect(&server, "").await;
        // Directories are there: a lock that is used again and again has one.
        for n in 0..KEYS {
            bare.directory(&format!("/bare/{n}")).await;
            locks
                .lock(format!("lock:{n}"))
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
        let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
        for round in 0..ROUNDS + 1 {
            let each = |times: &[Duration]| median(times.to_vec());
            let mut bare_times = Vec::with_capacity(PAIRS);
            for n in 0..PAIRS {
                let directory = format!("/bare/{}", n % KEYS);
                let began = Instant::now();
                bare.pair(&directory).await;
                bare_times.push(began.elapsed());
            }
            let mut lock_times = Vec::with_capacity(PAIRS);
            for n in 0..PAIRS {
                let key = format!("lock:{}", n % KEYS);
                let began = Instant::now();
                let guard = locks.lock(key.as_str()).await.unwrap();
                guard.release().await.unwrap();
                lock_times.push(began.elapsed());
            }
            // The first round warms up.
            if round > 0 {
                let (bare, lock) = (each(&bare_times), each(&lock_times));
                ratios.push(lock.as_secs_f64() / bare.as_secs_f64());
                ours.push(lock);
                theirs.push(bare);
            }
        }
        row(
            "acquire and release, bare requests",
            &format!("{:.1?}", median(theirs)),
        );
        row("acquire and release", &format!("{:.1?}", median(ours)));
        row("ratio", &format!("{:.3}", middle(ratios)));
    });
}
