use lock_testkit::servers::RedisSentinels;
use polylock_core::ErrorKind;

use super::*;

#[tokio::test]
async fn the_master_is_found_and_followed_without_a_call() {
    let servers = RedisSentinels::start();
    let (topology, told) = open(&by_url(&servers.url())).await;
    let channel = topology.channel().await.unwrap().unwrap();
    assert_eq!(count(&*topology, "a").await.unwrap(), 1);
    servers.wait_for_replica();
    servers.fail_over();

    // Nothing is sent meanwhile.
    until("the move", || told.moved.load(Ordering::SeqCst) == 1).await;
    assert!(told.deaf.load(Ordering::SeqCst) >= 1);
    assert_eq!(count(&*topology, "a").await.unwrap(), 2);
    assert_eq!(topology.subscribed().as_ref(), Some(&channel));
    let heard = servers.master().command(&["PUBLISH", &channel, "one"]);
    assert_eq!(heard.integer(), Some(1));
    until("a message", || told.has(b"one")).await;
    assert_eq!(told.moved.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_master_that_stops_is_left_and_not_used_when_it_goes_on() {
    let servers = RedisSentinels::start();
    let (topology, told) = open(&by_url(&servers.url())).await;
    assert_eq!(count(&*topology, "a").await.unwrap(), 1);
    servers.wait_for_replica();
    servers.servers()[0].stop();
    count_in_time(&*topology, "a").await;
    until("the move", || told.moved.load(Ordering::SeqCst) == 1).await;
    servers.servers()[0].resume();
    count(&*topology, "b").await.unwrap();
    assert_eq!(
        servers.servers()[1]
            .command(&["GET", "b"])
            .text()
            .as_deref(),
        Some("1")
    );
}

#[tokio::test]
async fn a_replica_is_no_master() {
    let servers = RedisSentinels::start();
    let config = by_url(&servers.url());
    let (topology, _) = open(&config).await;
    count(&*topology, "a").await.unwrap();
    // The master is demoted without the Sentinels.
    let to = servers.servers()[1].port().to_string();
    servers.servers()[0].command(&["REPLICAOF", "127.0.0.1", &to]);
    let failure = count(&*topology, "a").await.unwrap_err();
    assert!(!failure.outcome_unknown, "{failure:?}");
    let failure = count(&*topology, "a").await.unwrap_err();
    assert!(!failure.outcome_unknown, "{failure:?}");
    assert_eq!(Error::from(failure).kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn some_sentinels_may_be_down() {
    let servers = RedisSentinels::start_light();
    servers.sentinels()[0].kill();
    servers.sentinels()[1].stop();
    let (topology, _) = open(&by_url(&servers.url())).await;
    count(&*topology, "a").await.unwrap();
    servers.sentinels()[2].kill();
    count(&*topology, "a").await.unwrap();
}

#[tokio::test]
async fn an_unknown_master_is_an_error() {
    let servers = RedisSentinels::start_light();
    let config = by_url(&servers.url().replace("/main", "/other"));
    let error = refused(&config).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("\"other\""), "{error}");
}
