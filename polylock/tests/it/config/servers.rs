//! What a class requires, on a real server.

use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock::prelude::*;

use super::loader;

#[tokio::test]
async fn a_class_that_requires_strong_fencing_is_refused_on_redis() {
    let redis = RedisServer::start(RedisOptions::new());
    let text = "backend.main.url = 'memory:'\n[class.pay]\nrequire = ['strong-fencing']\n";
    let config = loader(&[]).with_url(redis.url()).parse(text);
    let error = config.expect("it is right").connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let why = "the class \"pay\" requires strong-fencing, which redis";
    assert!(error.message().starts_with(why), "{error}");
}
