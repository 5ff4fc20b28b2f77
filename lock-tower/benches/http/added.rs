use std::time::{Duration, Instant};

use lock_core::{DistributedLock, DistributedLockExt as _};
use lock_testkit::servers::{RedisOptions, RedisServer};

use super::load::{Client, clients, send, serve};
use super::routes::{bare, connect, connect_bare, locked};
use super::{median, runtime};

const REQUESTS: usize = 3_000;

/// One connection, distinct keys, Redis on loopback: what the lock adds to the time of a request,
/// beside what acquiring and releasing take by themselves.
pub(crate) fn run() {
    let redis = RedisServer::start(RedisOptions::default());
    let url = redis.url();
    let (pairs, without, with) = runtime().block_on(async {
        let backend = connect_bare(&url).await;
        let alone = serve(bare()).await;
        let locked = serve(locked(connect(&url).await)).await;
        let mut alone = clients(alone, 1).await.remove(0);
        let mut locked = clients(locked, 1).await.remove(0);
        let (mut pairs, mut without, mut with) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..6 {
            let measured = (
                pair(&*backend, round).await,
                request(&mut alone, round).await,
                request(&mut locked, round).await,
            );
            if round > 0 {
                pairs.push(measured.0);
                without.push(measured.1);
                with.push(measured.2);
            }
        }
        (median(pairs), median(without), median(with))
    });
    let added = with.saturating_sub(without);
    println!("distinct keys, one connection, Redis on loopback, medians");
    println!("  acquire + release    {pairs:>10.1?}");
    println!("  the route alone      {without:>10.1?}");
    println!("  the layer on Redis   {with:>10.1?}");
    println!(
        "  added                {added:>10.1?}, {:.2} x acquire + release",
        added.as_secs_f64() / pairs.as_secs_f64()
    );
}

async fn pair(locks: &dyn DistributedLock, round: usize) -> Duration {
    let mut times = Vec::with_capacity(REQUESTS);
    for number in 0..REQUESTS {
        let key = format!("pair/{round}/{number}");
        let began = Instant::now();
        let guard = locks.lock(key).await.unwrap();
        guard.release().await.unwrap();
        times.push(began.elapsed());
    }
    median(times)
}

async fn request(client: &mut Client, round: usize) -> Duration {
    let mut times = Vec::with_capacity(REQUESTS);
    for number in 0..REQUESTS {
        let began = Instant::now();
        send(client, &format!("{round}-{number}")).await;
        times.push(began.elapsed());
    }
    median(times)
}
