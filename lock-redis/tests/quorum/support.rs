use std::sync::Arc;
use std::time::Duration;

use lock_testkit::servers::{RedisNodes, RedisOptions, RedisServer};
use polylock_core::{AcquireRequest, DistributedLock, Error, ErrorKind, LockGuard, Renewal, Wait};
use polylock_redis::{RedisConfig, Redlock};

use super::nodes::{PATIENT, config, holders};

pub(crate) use crate::support::{
    SOON, acquire, assert_error, assert_took, break_lock, inspect, loss, loss_by_renewal, ms,
    release, stays_held, token, until, within,
};

/// A lease that a busy machine renews in time.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// Nodes without anything in between.
pub(crate) fn start(count: usize) -> RedisNodes {
    RedisNodes::start(count, &RedisOptions::new())
}

/// The way to all of them, which may vote at once.
pub(crate) fn to(nodes: &RedisNodes) -> RedisConfig {
    config(nodes.iter().map(|node| node.port()), PATIENT)
}

pub(crate) async fn client(nodes: &RedisNodes) -> Arc<Redlock> {
    super::nodes::open(to(nodes)).await
}

/// A request with a short lease, which is renewed.
pub(crate) fn request(name: &str) -> AcquireRequest {
    crate::support::request(name).with_ttl(TTL)
}

/// The same with a lease without renewals.
pub(crate) fn lease(name: &str) -> AcquireRequest {
    request(name).with_renewal(Renewal::Manual)
}

pub(crate) fn once(request: AcquireRequest) -> AcquireRequest {
    request.with_wait(Wait::Never)
}

/// Waits for the votes that an acquisition does not wait for.
pub(crate) async fn all_voted(nodes: &[RedisServer], name: &str) {
    let has_it = |node: &RedisServer| holders(node, name) == 1;
    until("all nodes have voted", || nodes.iter().all(has_it)).await;
}

/// Waits until no node has a lock.
pub(crate) async fn all_free(nodes: &[RedisServer], name: &str) {
    let is_free = |node: &RedisServer| holders(node, name) == 0;
    until("no node has it", || nodes.iter().all(is_free)).await;
}

/// Makes one attempt, which is refused.
pub(crate) async fn assert_refused(
    locks: &dyn DistributedLock,
    request: AcquireRequest,
    kind: ErrorKind,
) -> Error {
    assert_error(locks, &once(request), kind).await
}

/// Takes a lock within a few seconds.
pub(crate) async fn take(locks: &dyn DistributedLock, name: &str) -> LockGuard {
    acquire(locks, &within(request(name), SOON)).await
}
