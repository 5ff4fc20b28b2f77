//! The effect of a server restart, for each kind of persistence.

use std::fs;

use lock_testkit::servers::{Fsync, RedisOptions};
use polylock_core::{AcquireRequest, ErrorKind, LockGuard, LostReason, Renewal};
use tokio::time::Instant;

use crate::support::{
    LONG_TTL, Place, TTL, acquire, assert_error, assert_replaced, assert_took, attempt, granted,
    info, loss_by_renewal, ms, pass, release, renewed, request, take, until, within,
};

/// A ttl that outlasts what a test does.
fn long(name: &str) -> AcquireRequest {
    within(request(name).with_ttl(LONG_TTL), TTL * 5)
}

/// The lock is gone, and the holder does not know yet: documented as unsafe.
async fn assert_lost(place: &Place, guard: LockGuard) {
    let other = place.elsewhere().await;
    let next = acquire(&other, &long("a")).await;
    assert!(guard.is_held(), "not shown to be unsafe");
    assert_eq!(loss_by_renewal(&guard).await, LostReason::Stolen);
    assert_replaced(guard, next).await;
}

/// The lock is there, and its holder goes on.
async fn assert_kept(place: &Place, guard: LockGuard) {
    let other = place.elsewhere().await;
    assert_error(&other, &attempt("a"), ErrorKind::Contended).await;
    // The connections of before the restart are broken, which a renewal may be the first to notice.
    renewed(&guard).await;
    let token = guard.fencing_token();
    release(guard).await;
    let next = take(&other, "a").await;
    assert!(next.fencing_token() > token, "the token does not grow");
    next.release().await.expect("it is released");
    place.assert_nothing_left(&[&other], "a").await;
}

/// Without renewals, one of which could learn of the loss before the test does.
async fn held(place: &Place) -> LockGuard {
    let manual = long("a").with_renewal(Renewal::Manual);
    acquire(&*place.client().await, &manual).await
}

#[tokio::test]
async fn without_persistence_a_restart_loses_the_lock() {
    let place = Place::new();
    let guard = held(&place).await;
    place.server.restart();
    assert_lost(&place, guard).await;
}

#[tokio::test]
async fn a_snapshot_from_before_the_lock_loses_it() {
    let place = Place::with(RedisOptions::new().with_config("save", "3600 1"));
    let first = place.client().await;
    pass(&first, "a").await;
    place.command(&["SAVE"]);
    let guard = held(&place).await;
    place.server.restart();
    assert_lost(&place, guard).await;
}

#[tokio::test]
async fn a_snapshot_from_before_the_release_brings_the_lock_back_until_its_lease_is_over() {
    let place = Place::with(RedisOptions::new().with_config("save", "3600 1"));
    let locks = place.client().await;
    let lease = crate::support::lease("a").with_ttl(TTL * 4);
    let guard = acquire(&locks, &lease).await;
    let token = guard.fencing_token();
    place.command(&["SAVE"]);
    guard.release().await.expect("it is released");
    place.server.restart();
    let other = place.elsewhere().await;
    assert_error(&other, &attempt("a"), ErrorKind::Contended).await;
    let began = Instant::now();
    let next = take(&other, "a").await;
    assert_took("the end of the lease", began, ..TTL * 4 + ms(1_500));
    assert!(next.fencing_token() > token, "the token does not grow");
    next.release().await.expect("it is released");
}

#[tokio::test]
async fn an_append_only_file_keeps_the_lock() {
    for fsync in [Fsync::Always, Fsync::EverySecond] {
        let place = Place::with(RedisOptions::new().with_aof(fsync));
        let guard = held(&place).await;
        written(&place).await;
        place.server.restart();
        assert_kept(&place, guard).await;
    }
}

/// The server has written all acknowledged commands to the system. With `everysec` it may delay that by
/// 2 s while the disk is busy with earlier writes.
async fn written(place: &Place) {
    let is_written = || info(&place.server, "aof_buffer_length") == "0";
    until("it is written", is_written).await;
}

#[tokio::test]
async fn an_append_only_file_keeps_the_queue() {
    let place = Place::with(RedisOptions::new().with_aof(Fsync::Always));
    let guard = held(&place).await;
    let locks = place.client().await;
    let first = crate::support::waiting(&locks, long("a"));
    place.queued("a", 1).await;
    place.server.restart();
    assert_eq!(place.waiters("a"), 1);
    let second = crate::support::waiting(&locks, long("a"));
    place.queued("a", 2).await;
    guard.release().await.expect("it is released");
    let first = granted(first).await;
    assert!(!second.is_finished(), "two holders");
    let token = first.fencing_token();
    first.release().await.expect("it is released");
    let second = granted(second).await;
    assert!(second.fencing_token() > token);
    second.release().await.expect("it is released");
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn an_append_only_file_that_lost_its_end_may_lose_the_lock_and_the_token_grows() {
    let options = RedisOptions::new().with_aof(Fsync::EverySecond);
    let place = Place::with(options.with_config("aof-load-truncated", "yes"));
    // What a power failure leaves of the last second.
    let files = place.server.dir().join("appendonlydir");
    let log = fs::read_dir(files)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .expect("a log");
    let first = place.client().await;
    pass(&first, "a").await;
    written(&place).await;
    let before = fs::metadata(&log).expect("a file").len();
    let guard = held(&place).await;
    written(&place).await;
    place.server.kill();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&log)
        .expect("a file");
    file.set_len(before + 23).expect("it is cut");
    place.server.restart();
    assert_lost(&place, guard).await;
}
