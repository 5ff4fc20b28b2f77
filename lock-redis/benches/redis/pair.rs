//! One task that takes and gives back a free lock.

use std::time::{Duration, Instant};

use lock_core::DistributedLockExt;

use crate::bare::Bare;
use crate::{connect, median, middle, row, runtime, server};

const ROUNDS: usize = 30;
const PAIRS: usize = 400;

pub(crate) fn run() {
    let server = server();
    runtime().block_on(async {
        let mut bare = Bare::connect(&server).await;
        let locks = connect(&server, "").await;
        let (mut ours, mut theirs, mut ratios) = (vec![], vec![], vec![]);
        for round in 0..ROUNDS + 1 {
            let each = |times: &[Duration]| median(times.to_vec());
            let mut bare_times = Vec::with_capacity(PAIRS);
            for n in 0..PAIRS {
                let (key, value) = (format!("bare:{n}"), "0123456789abcdef0123456789abcdef");
                let began = Instant::now();
                bare.pair(&key, value).await;
                bare_times.push(began.elapsed());
            }
            let mut lock_times = Vec::with_capacity(PAIRS);
            for n in 0..PAIRS {
                let key = format!("lock:{n}");
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
            "acquire and release, bare commands",
            &format!("{:.1?}", median(theirs)),
        );
        row("acquire and release", &format!("{:.1?}", median(ours)));
        row("ratio", &format!("{:.3}", middle(ratios)));
    });
}
