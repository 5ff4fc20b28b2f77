//! Clusters some of whose masters are gone: the others serve, and no list hides a lock.

use lock_testkit::servers::RedisCluster;
use polylock_core::{Error, ErrorKind, HealthCheck, Status};
use polylock_redis::Redis;

use crate::health::check_health;
use crate::support::{admin, of_cluster, open, pass};

/// A name of a lock that this master has.
fn name_at(cluster: &RedisCluster, master: usize) -> String {
    let mut names = (0..).map(|n| format!("k{n}"));
    let is_there = |name: &String| cluster.owner_of(cluster.slot_of(name)) == master;
    names.find(is_there).expect("each master has slots")
}

async fn list(locks: &Redis) -> Result<Vec<String>, Error> {
    let listed = admin(locks).list("").await?;
    Ok(listed
        .into_iter()
        .map(|info| info.key.to_string())
        .collect())
}

async fn assert_others_serve(cluster: &RedisCluster, gone: usize) {
    let config = of_cluster(cluster).with_strict_checks();
    let error = Redis::connect(config).await;
    let error = error.expect_err("the others are checked, and persist nothing");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    let locks = open(of_cluster(cluster)).await;
    pass(&locks, &name_at(cluster, (gone + 1) % 3)).await;
    let error = list(&locks).await.expect_err("a master is missing");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let address = format!("127.0.0.1:{}", cluster[gone].port());
    assert!(error.to_string().contains(&address), "{error}");

    let found = check_health(&cluster.url()).await;
    let of = |id: &str| -> Vec<&HealthCheck> { found.iter().filter(|one| one.id == id).collect() };
    let [nodes] = of("nodes")[..] else {
        panic!("{found:#?}");
    };
    assert_eq!(nodes.status, Status::Error, "{nodes}");
    assert!(nodes.summary.contains("1 of 3 masters"), "{nodes}");
    assert!(nodes.summary.contains(&address), "{nodes}");
    assert_eq!(of("replica").len(), 1, "{found:#?}");
    assert_eq!(of("replica")[0].status, Status::Ok, "{found:#?}");
}

#[tokio::test]
async fn a_master_that_is_dead_or_hangs_costs_new_clients_no_lock_of_another() {
    let cluster = RedisCluster::start(3, 0);
    cluster[1].stop();
    assert_others_serve(&cluster, 1).await;
    cluster[1].resume();
    cluster[1].kill();
    assert_others_serve(&cluster, 1).await;
}
