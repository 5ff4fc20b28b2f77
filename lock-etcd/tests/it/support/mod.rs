//! What the tests of this crate share.

mod grpc_proxy;
mod place;
mod store;
mod tree;

use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
pub(crate) use lock_testkit::locks::{
    admin, assert_error, granted, key, ms, permits, release, renewed, token, until, waiting,
};
pub(crate) use lock_testkit::servers::{EtcdOptions, EtcdServer};
use polylock_core::{AcquireRequest, LockGuard, LostReason, Wait};
use polylock_etcd::{Etcd, EtcdConfig};

pub(crate) use self::grpc_proxy::{
    is_creation, is_grant, is_keep_alive, is_read, is_release, is_renewal, is_revocation, is_watch,
    is_write,
};
pub(crate) use self::place::Place;
pub(crate) use self::store::{Store, config};

/// Enough time for a few requests on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The ttl of the locks of the tests.
pub(crate) const TTL: Duration = Duration::from_secs(3);

pub(crate) fn request(name: &str) -> AcquireRequest {
    let request = AcquireRequest::new(key(name)).with_ttl(TTL);
    request.with_wait(Wait::AtMost(SOON * 2))
}

/// A request for a lock that is not renewed while the test lasts: its lease outlasts that.
pub(crate) fn long(name: &str) -> AcquireRequest {
    request(name).with_ttl(SOON * 6)
}

pub(crate) async fn open(config: EtcdConfig) -> Arc<Etcd> {
    let locks = Etcd::connect(config).await;
    Arc::new(locks.expect("it connects"))
}

pub(crate) async fn acquire(locks: &Etcd, name: &str) -> LockGuard {
    lock_testkit::locks::acquire(locks, &request(name)).await
}

/// A client of one server, past the client under test.
pub(crate) async fn client(server: &EtcdServer) -> Client {
    let url = format!("http://{}", server.address());
    Client::connect([url], None).await.expect("it connects")
}

/// How the holder loses the lock.
pub(crate) async fn loss(guard: &LockGuard) -> LostReason {
    let lost = tokio::time::timeout(SOON * 2, guard.lost().into_future()).await;
    lost.expect("the loss is signaled")
}
