//! Traits and sizes of the public types.

use std::fmt::Debug;
use std::sync::Arc;

use polylock_core::engine::{Engine, LeaseId, Moment};
use polylock_core::memory::Memory;
use polylock_core::prelude::*;
use polylock_core::{
    AcquireRequest, Backend, Capabilities, Expiring, FencingToken, Lease, LeaseControl, LockUrl,
    LostSignal, MultiGuard, Owner, PendingRelease, Registry, Renewer, Ticket,
};

fn shared<T: Debug + Send + Sync + 'static>() {}

fn sent<T: Send>(value: T) -> T {
    value
}

#[test]
fn values_cross_threads() {
    shared::<AcquireRequest>();
    shared::<Capabilities>();
    shared::<Engine>();
    shared::<Error>();
    shared::<FencingToken>();
    shared::<LeaseControl>();
    shared::<LeaseId>();
    shared::<LockGuard>();
    shared::<LockKey>();
    shared::<LockUrl>();
    shared::<LostSignal>();
    shared::<Moment>();
    shared::<MultiGuard>();
    shared::<Owner>();
    shared::<PendingRelease>();
    shared::<Registry>();
    shared::<Ticket>();
}

#[test]
fn traits_are_dyn_compatible() {
    shared::<Arc<dyn DistributedLock>>();
    shared::<Arc<dyn Backend>>();
    shared::<Arc<dyn Lease>>();
    shared::<Arc<dyn Renewer>>();
}

#[test]
fn a_guard_is_small() {
    assert_eq!(size_of::<LockGuard>(), size_of::<usize>());
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    // What the layers change stands in it, so that they copy nothing else.
    assert!(size_of::<AcquireRequest>() <= 10 * size_of::<usize>());
}

#[tokio::test]
async fn futures_cross_threads() {
    let locks: Arc<dyn DistributedLock> = Arc::new(Memory::new());
    let guard = sent(locks.lock("k")).await.unwrap();
    sent(guard.run(async {})).await.unwrap();
    sent(guard.renew()).await.unwrap();
    let expiring: Expiring = sent(guard.expiring(std::time::Duration::ZERO));
    drop(expiring);
    let lost = sent(guard.lost().into_future());
    let ticket = guard.into_ticket().unwrap();
    let guard = sent(locks.adopt(&ticket)).await.unwrap();
    sent(guard.release()).await.unwrap();
    sent(locks.try_lock("k")).await.unwrap();
    drop(sent(locks.request("k").shared().acquire()).await.unwrap());
    let both = sent(locks.lock_all(["a", "b"])).await.unwrap();
    sent(both.release()).await.unwrap();
    drop(lost);
    // A future that owns what it locks can be spawned.
    let spawned = tokio::spawn(async move { drop(locks.lock("k").await) });
    spawned.await.unwrap();
}
