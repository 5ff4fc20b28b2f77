use std::time::Duration;

use lock_testkit::servers::{
    PostgresOptions, PostgresServer, RedisOptions, RedisServer, ZooKeeperOptions, ZooKeeperServer,
};

use super::load::{Keys, rates};
use super::routes::{behind_a_mutex, connect, locked};
use super::{median, runtime};

/// 64 connections and one key, in one process.
pub(crate) fn run() {
    let redis = RedisServer::start(RedisOptions::default());
    let postgres = PostgresServer::start(PostgresOptions::default());
    let zookeeper = ZooKeeperServer::start(ZooKeeperOptions::default());
    let directory = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", directory.path().join("locks.db").display());
    let backends = [
        ("memory", "memory:".to_owned()),
        ("Redis", redis.url()),
        ("PostgreSQL, rows", postgres.url()),
        ("ZooKeeper", zookeeper.url()),
        ("SQLite", sqlite),
    ];
    println!("one key, 64 connections, requests/s");
    for (name, url) in backends {
        let rates = runtime().block_on(async {
            let apps = vec![behind_a_mutex(), locked(connect(&url).await)];
            rates(apps, 64, Keys::One, 7, Duration::from_secs(1)).await
        });
        let ratios: Vec<_> = rates[0].iter().zip(&rates[1]).map(|(a, b)| b / a).collect();
        println!(
            "  {name:<18} {:>8.0}, behind a mutex {:>8.0}, ratio {:.2} ({:.2} to {:.2})",
            median(rates[1].clone()),
            median(rates[0].clone()),
            median(ratios.clone()),
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max),
        );
    }
}
