//! What a class requires, on real servers.

use std::time::Duration;

use lock_testkit::servers::{
    MariaDbServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
};
use polylock::config::Locks;
use polylock::prelude::*;

use super::loader;

/// Connects the class `pay` of a configuration whose backend has this URL.
async fn connect(url: &str, require: &str) -> polylock::Result<Locks> {
    let text = format!("backend.main.url = 'memory:'\n[class.pay]\nrequire = ['{require}']\n");
    let config = loader(&[]).with_url(url).parse(&text).expect("it is right");
    config.connect().await
}

#[tokio::test]
async fn a_class_that_requires_fencing_is_served_by_each_server() {
    let redis = RedisServer::start(RedisOptions::new());
    let servers = [
        ("mysql", MariaDbServer::shared().database()),
        ("postgres", PostgresServer::shared().database()),
        ("redis", redis.url()),
        ("zookeeper", ZooKeeperServer::shared().url()),
    ];
    for (backend, url) in servers {
        let locks = connect(&url, "fencing").await.unwrap();
        let pay = locks.class("pay").unwrap();
        assert_eq!(pay.capabilities().backend, backend);
        let guard = pay.lock("of-a-class").await.unwrap();
        assert!(guard.fencing_token().is_some(), "{backend}");
        guard.release().await.unwrap();
        assert!(locks.shutdown(Duration::from_secs(10)).await, "{backend}");
    }
}

#[tokio::test]
async fn a_class_that_requires_strong_fencing_is_refused_on_redis() {
    let redis = RedisServer::start(RedisOptions::new());
    let error = connect(&redis.url(), "strong-fencing").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let why = "the class \"pay\" requires strong-fencing, which redis";
    assert!(error.message().starts_with(why), "{error}");
}
