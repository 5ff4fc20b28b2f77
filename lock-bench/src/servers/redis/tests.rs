use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock::LockUrl;

use super::super::testing::{commands_of_a_pair, excludes};
use super::*;

async fn open_both(server: &RedisServer) -> (Asker, Least) {
    let url = LockUrl::parse(&server.url()).unwrap();
    let client = client(&url).unwrap();
    let asker = Asker::new(connect(&client).await.unwrap());
    let least = Least::new(connect(&client).await.unwrap(), url.namespace());
    (asker, least.await.unwrap())
}

#[tokio::test]
async fn bare_commands_exclude_and_are_counted() {
    let server = RedisServer::start(RedisOptions::new());
    let (asker, least) = open_both(&server).await;
    // Two of the client, and two inside of the script.
    assert_eq!(commands_of_a_pair(&asker, &least).await, 4.0);
    excludes(least).await;
}

#[tokio::test]
async fn a_release_of_another_holder_frees_nothing() {
    use std::time::Duration;

    use crate::subject::{LOST, Subject as _};

    let server = RedisServer::start(RedisOptions::new());
    let (_, least) = open_both(&server).await;
    let key = least.key("stolen").unwrap();
    let ttl = Duration::from_secs(30);
    let held = least.acquire(&key, ttl, None).await.unwrap().unwrap();
    server.command(&["SET", "lock-bench-bare:stolen", "somebody else's"]);
    assert_eq!(least.release(held).await.unwrap_err().kind(), LOST);
    let refused = least
        .acquire(&key, ttl, Some(Duration::ZERO))
        .await
        .unwrap();
    assert!(refused.is_none());
}

#[tokio::test]
async fn a_server_that_forgot_the_script_is_told_again() {
    use std::time::Duration;

    use crate::subject::Subject as _;

    let server = RedisServer::start(RedisOptions::new());
    let (_, least) = open_both(&server).await;
    let key = least.key("forgotten").unwrap();
    let ttl = Duration::from_secs(30);
    let held = least.acquire(&key, ttl, None).await.unwrap().unwrap();
    server.command(&["SCRIPT", "FLUSH"]);
    least.release(held).await.unwrap();
}
