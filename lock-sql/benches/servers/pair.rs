//! One task that takes and gives back a free lock.

use std::time::{Duration, Instant};

use lock_core::DistributedLockExt;

use crate::bare::{Bare, Far, Means, prepare};
use crate::figures::{median, middle, row};
use crate::locks::{Mode, connect, runtime};
use crate::server::{Database, Server};

const ROUNDS: usize = 20;
const PAIRS: u32 = 100;
const KEYS: u32 = 20;
const CONNECTIONS: u32 = 10;

pub(crate) fn run(database: Database) {
    for is_durable in [false, true] {
        let server = Server::start(database, is_durable);
        prepare(&server);
        for mode in Mode::ALL {
            runtime().block_on(measure(database, &server, mode, is_durable));
        }
    }
}

async fn measure(database: Database, server: &Server, mode: Mode, is_durable: bool) {
    let url = server.url();
    let means = match mode {
        Mode::Lease => Means::Pool(CONNECTIONS),
        Mode::Advisory | Mode::Row => Means::Connection,
    };
    let far = Far::open(database, &url, means);
    let far_alone = Far::open(database, &url, Means::Connection);
    let mut near = Bare::open(database, &url, means).await;
    let params = format!("?mode={}&connections={CONNECTIONS}", mode.name());
    let locks = connect(&format!("{url}{params}")).await;
    let mut times = [const { Vec::new() }; 4];
    let mut ratios = [const { Vec::new() }; 3];
    for round in 0..ROUNDS + 1 {
        let mut medians = [Duration::ZERO; 4];
        for (which, median_of) in medians.iter_mut().enumerate() {
            let mut taken = Vec::new();
            for n in 0..PAIRS {
                let key = n % KEYS;
                let began = Instant::now();
                match which {
                    0 => far.pair(mode, key).await,
                    1 => far_alone.pair(mode, key).await,
                    2 => near.pair(mode, key, async || ()).await,
                    _ => {
                        let guard = locks.lock(format!("lock:{key}")).await.unwrap();
                        guard.release().await.unwrap();
                    }
                }
                taken.push(began.elapsed());
            }
            *median_of = median(taken);
        }
        // The first round warms up.
        if round > 0 {
            for (all, this) in times.iter_mut().zip(medians) {
                all.push(this);
            }
            for (all, bare) in ratios.iter_mut().zip(medians) {
                all.push(medians[3].as_secs_f64() / bare.as_secs_f64());
            }
        }
    }
    let disk = if is_durable {
        ", commits wait for the disk"
    } else {
        ""
    };
    let what = format!("{} {}{disk}", database.title(), mode.name());
    let [pooled, alone, direct, ours] = times.map(median);
    let [to_pooled, to_alone, to_direct] = ratios.map(middle);
    row(
        &format!("{what}: acquire and release"),
        &format!("{ours:.1?}"),
    );
    let bare = |how: &str, time: Duration, ratio: f64| {
        row(
            &format!("{what}: bare statements, {how}; ratio"),
            &format!("{time:.1?} | {ratio:.3}"),
        );
    };
    if mode == Mode::Lease {
        bare("on a pool in a thread of its own", pooled, to_pooled);
        bare("on a connection in a thread of its own", alone, to_alone);
        bare("on a pool in the task that measures", direct, to_direct);
    } else {
        bare("on a connection in a thread of its own", pooled, to_pooled);
        bare(
            "on a connection in the task that measures",
            direct,
            to_direct,
        );
    }
}
