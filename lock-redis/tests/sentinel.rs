//! Grants and renewals by a master that Sentinels watch.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::servers::{RedisSentinels, RedisServer};
use polylock_core::admin::Record;
use polylock_core::layers::LocalQueue;
use polylock_core::{DistributedLock, ErrorKind, FencingToken, LockGuard, LostReason, Mode};
use polylock_redis::{Redis, RedisConfig};

use crate::support::{
    SOON, TTL, acquire, any_id, assert_error, attempt, count, granted, inspect, lease, loss, ms,
    of_sentinels, open, pass, release, request, stays_held, take, until, waiting, with_acks,
    within,
};

/// Long enough for renewals to be late on a busy machine.
const LEASE: Duration = TTL.saturating_mul(3);

async fn hold(locks: &Redis, name: &str) -> LockGuard {
    acquire(locks, &within(request(name).with_ttl(LEASE), SOON * 2)).await
}

/// Sentinels of a master without a replica, and a client.
async fn light() -> (RedisSentinels, Arc<Redis>) {
    let servers = RedisSentinels::start_light();
    let locks = open(of_sentinels(&servers)).await;
    (servers, locks)
}

/// Leaves one of three Sentinels, which is no majority.
fn stop_two(servers: &RedisSentinels) {
    for sentinel in &servers.sentinels()[1..] {
        sentinel.stop();
    }
}

#[tokio::test]
async fn one_sentinel_that_is_gone_or_hangs_costs_nothing() {
    for hangs in [false, true] {
        let (servers, locks) = light().await;
        let guard = hold(&locks, "a").await;
        let ill = &servers.sentinels()[usize::from(hangs)];
        if hangs {
            ill.stop();
        } else {
            ill.kill();
        }
        for _ in 0..10 {
            guard.renew().await.expect("two of three are a majority");
            pass(&locks, "b").await;
            tokio::time::sleep(TTL / 5).await;
        }
        guard.release().await.expect("it is released");
    }
}

#[tokio::test]
async fn a_master_that_few_sentinels_confirm_extends_nothing_and_grants_nothing() {
    let (servers, locks) = light().await;
    let guard = take(&locks, "a").await;
    let left = acquire(&locks, &lease("left").with_ttl(SOON * 6)).await;
    stop_two(&servers);
    // The master answers every renewal.
    assert_eq!(loss(&guard).await, LostReason::Unreachable);
    tokio::time::sleep(ms(2_000)).await;
    let admin = locks.admin().expect("it has an administration");
    let id = left.lease_id().expect("a lease");
    let record = Record::new(FencingToken::new(7), "");
    let adopted = admin.adopt_lease(left.key(), id, any_id(), SOON * 6).await;
    // Nor may it say that a lease is not there, or that a record has a larger token.
    let nothing = admin.adopt_lease(left.key(), any_id(), any_id(), SOON * 6);
    let nothing = nothing.await;
    let written = admin.write_record(left.key(), &record, SOON).await;
    let smaller = Record::new(FencingToken::new(6), "");
    let refused = admin.write_record(left.key(), &smaller, SOON).await;
    // The next master may have the lock, whether this one has it or not.
    let broken = admin.break_lock(left.key(), "test").await;
    let free = admin.break_lock(left.key(), "test").await;
    let answers = [
        adopted.map(drop),
        nothing.map(drop),
        written.map(drop),
        refused.map(drop),
        broken.map(drop),
        free.map(drop),
    ];
    for error in answers.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.message().contains("1 of 3 sentinels"), "{error}");
        assert!(error.is_outcome_unknown(), "{error}");
    }
    let error = admin.record(left.key()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let once = attempt("b");
    let error = assert_error(&locks, &once, ErrorKind::Unavailable).await;
    assert!(error.message().contains("1 of 3 sentinels"), "{error}");
    assert!(locks.shutdown(SOON).await, "the grant is not undone");
    let master = &servers.servers()[0];
    let exists = || master.command(&["EXISTS", "b"]).integer();
    assert_eq!(exists(), Some(0));
    // Waiters get through as soon as there is a majority.
    let next = waiting(&locks, within(request("b"), SOON * 2));
    servers.sentinels()[2].resume();
    release(granted(next).await).await;
}

/// The next master may have it free.
#[tokio::test]
async fn a_lock_held_at_a_master_that_few_sentinels_confirm_is_unavailable() {
    let (servers, locks) = light().await;
    let guard = acquire(&locks, &lease("a").with_ttl(TTL * 90)).await;
    let (once, admin) = (attempt("a"), locks.admin().expect("it has one"));
    let is_contended = async || {
        let error = locks.acquire(&once).await.expect_err("it is held");
        error.kind() == ErrorKind::Contended
    };
    lock_testkit::locks::until("three of three confirm it", &is_contended).await;
    stop_two(&servers);
    // Earlier answers count for a second.
    lock_testkit::locks::until("they are over", async || !is_contended().await).await;
    let by_script = attempt("a").with_mode(Mode::Shared);
    let waiter = within(request("a"), TTL);
    for request in [&once, &by_script, &waiter] {
        let error = assert_error(&locks, request, ErrorKind::Unavailable).await;
        assert!(error.message().contains("1 of 3 sentinels"), "{error}");
        assert!(!error.is_outcome_unknown(), "{error}");
    }
    let error = admin.inspect(guard.key()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = admin.list("none").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    servers.sentinels()[1].resume();
    lock_testkit::locks::until("two of three confirm it", is_contended).await;
    assert_eq!(inspect(&locks, "a").await.holders.len(), 1);
    release(guard).await;
}

/// The tasks of a process share one place in the queue of the server.
#[tokio::test]
async fn a_wait_in_the_local_queue_at_a_master_that_few_sentinels_confirm_is_no_contention() {
    let (servers, locks) = light().await;
    let guard = acquire(&locks, &lease("a").with_ttl(TTL * 90)).await;
    let queue = LocalQueue::new(Arc::clone(&locks) as Arc<dyn DistributedLock>);
    let (waiter, once) = (within(request("a"), Duration::from_secs(8)), attempt("a"));
    let cut_off = async {
        lock_testkit::locks::until("it waits", async || {
            inspect(&locks, "a")
                .await
                .waiters
                .is_some_and(|all| all.len() == 1)
        })
        .await;
        let error = queue.acquire(&once).await.expect_err("it is held");
        assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
        stop_two(&servers);
        lock_testkit::locks::until("others learn of the cut", async || {
            let error = queue.acquire(&once).await.expect_err("it is held");
            error.kind() == ErrorKind::Unavailable && error.message().contains("1 of 3 sentinels")
        })
        .await;
    };
    tokio::join!(
        assert_error(&queue, &waiter, ErrorKind::Unavailable),
        cut_off
    );
    release(guard).await;
}

/// The next master may have the lease.
#[tokio::test]
async fn a_loss_by_a_master_that_few_sentinels_confirm_is_unknown_until_a_majority_does() {
    let (servers, locks) = light().await;
    let long = within(request("a").with_ttl(TTL * 90), SOON * 2);
    let guard = acquire(&locks, &long).await;
    stop_two(&servers);
    servers.servers()[0].command(&["DEL", "a"]);
    let error = guard.renew().await.expect_err("one of three confirms it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    assert!(guard.is_held(), "lost as {:?}", guard.lost().reason());
    servers.sentinels()[1].resume();
    // A failed renewal is repeated after a second.
    until("it is lost", || !guard.is_held()).await;
    assert_eq!(guard.lost().reason(), Some(LostReason::Stolen));
}

/// The next master may have the lease, as an exclusive one.
#[tokio::test]
async fn a_downgrade_by_a_master_that_few_sentinels_confirm_is_unknown_until_a_majority_does() {
    let (servers, locks) = light().await;
    let long = |name| within(request(name).with_ttl(TTL * 90), SOON * 2);
    let mut guard = acquire(&locks, &long("a")).await;
    let mut gone = acquire(&locks, &long("gone")).await;
    stop_two(&servers);
    servers.servers()[0].command(&["DEL", "gone"]);
    for guard in [&mut guard, &mut gone] {
        let error = guard
            .downgrade()
            .await
            .expect_err("one of three confirms it");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_outcome_unknown(), "{error}");
        assert!(guard.is_held(), "lost as {:?}", guard.lost().reason());
    }
    servers.sentinels()[1].resume();
    lock_testkit::locks::until("it is downgraded", async || guard.downgrade().await.is_ok()).await;
    release(guard).await;
    lock_testkit::locks::until("it is lost", async || {
        gone.downgrade().await.is_err() && !gone.is_held()
    })
    .await;
    assert_eq!(gone.lost().reason(), Some(LostReason::Stolen));
}

/// Its clock, which tokens follow, may be ahead of that of the next master. On one thread, a task that is
/// spawned is in the queue before the test goes on.
#[tokio::test]
async fn a_master_that_few_sentinels_confirm_draws_no_tokens_for_hand_overs() {
    let (servers, locks) = light().await;
    let queue = Arc::new(LocalQueue::new(locks));
    let long = |limit| within(request("a").with_ttl(TTL * 90), limit);
    let guard = acquire(&*queue, &long(SOON * 2)).await;
    let next = waiting(&queue, long(TTL * 3));
    tokio::task::yield_now().await;
    stop_two(&servers);
    // Earlier answers count for a second, but not for this.
    release(guard).await;
    let handed_over = next.await.expect("no panic");
    handed_over.expect_err("the next holder has a token of this master");
    servers.sentinels()[1].resume();
    release(acquire(&*queue, &long(SOON * 6)).await).await;
}

/// What a Sentinel says how many there are, itself included.
fn counted_by(sentinel: &RedisServer) -> usize {
    let name = RedisSentinels::MASTER;
    sentinel
        .command(&["SENTINEL", "SENTINELS", name])
        .items()
        .len()
        + 1
}

#[tokio::test]
async fn sentinels_that_join_later_are_found_and_counted() {
    let servers = RedisSentinels::start_light();
    let [first, second, third] = servers.sentinels() else {
        panic!("there are three Sentinels");
    };
    // The first one is alone until the others go on.
    second.stop();
    third.stop();
    first.command(&["SENTINEL", "RESET", RedisSentinels::MASTER]);
    assert_eq!(counted_by(first), 1, "it has not forgotten the others");
    let named = [("127.0.0.1", servers.ports()[0])];
    let locks = open(RedisConfig::sentinel(named, RedisSentinels::MASTER)).await;
    let guard = hold(&locks, "a").await;
    second.resume();
    third.resume();
    until("the first one knows the others", || counted_by(first) == 3).await;
    stays_held(&guard, LEASE * 2).await;
    third.stop();
    stays_held(&guard, LEASE * 2).await;
    second.stop();
    assert_eq!(loss(&guard).await, LostReason::Unreachable);
}

/// Two addresses of the configuration are of one Sentinel.
#[tokio::test]
async fn a_sentinel_with_two_names_counts_once() {
    let servers = RedisSentinels::start_light();
    let [first, second, _] = servers.ports()[..] else {
        panic!("there are three Sentinels");
    };
    let names = [
        ("localhost", first),
        ("127.0.0.1", first),
        ("127.0.0.1", second),
    ];
    let locks = open(RedisConfig::sentinel(names, RedisSentinels::MASTER)).await;
    let guard = hold(&locks, "a").await;
    servers.sentinels()[1].stop();
    stays_held(&guard, LEASE * 2).await;
    servers.sentinels()[2].stop();
    assert_eq!(loss(&guard).await, LostReason::Unreachable);
}

/// The rights of a user of the Sentinels, as documented.
const RIGHTS: [&str; 6] = [
    "+hello",
    "+subscribe",
    "+sentinel|get-master-addr-by-name",
    "+sentinel|master",
    "+sentinel|myid",
    "+sentinel|sentinels",
];

/// Gives a user of a Sentinel these rights, and no others.
fn set_rights(sentinel: &RedisServer, rights: &[&str]) {
    let user = ["ACL", "SETUSER", "locks", "reset", "on", ">secret"];
    let user = user.iter().chain(&["&+switch-master"]).chain(rights);
    let words: Vec<_> = user.copied().collect();
    let done = sentinel.command(&words);
    assert_eq!(done.text().as_deref(), Some("OK"), "{done:?}");
}

/// It does not say whether it considers the master down.
#[tokio::test]
async fn a_sentinel_that_denies_the_state_of_the_master_does_not_confirm_it() {
    let servers = RedisSentinels::start_light();
    for sentinel in servers.sentinels() {
        set_rights(sentinel, &RIGHTS);
    }
    let config = of_sentinels(&servers).with_sentinel_login("locks", "secret");
    let locks = open(config).await;
    let guard = hold(&locks, "a").await;
    let fewer: Vec<_> = RIGHTS
        .into_iter()
        .filter(|right| *right != "+sentinel|master")
        .collect();
    set_rights(&servers.sentinels()[0], &fewer);
    guard.renew().await.expect("two of three are a majority");
    set_rights(&servers.sentinels()[1], &fewer);
    guard.renew().await.expect_err("one of three confirms it");
    // Earlier answers count for a second.
    tokio::time::sleep(ms(1_500)).await;
    let once = attempt("b").with_ttl(LEASE);
    let error = assert_error(&locks, &once, ErrorKind::Denied).await;
    for part in ["1 of 3 sentinels", "2 deny", "+sentinel|master"] {
        assert!(error.message().contains(part), "{error}");
    }
    assert_eq!(loss(&guard).await, LostReason::Unreachable);
}

#[tokio::test]
async fn acks_of_all_replicas_do_not_replace_the_sentinels() {
    let (servers, locks) = with_acks().await;
    let guard = hold(&locks, "a").await;
    guard.renew().await.expect("it is renewed");
    for sentinel in &servers.sentinels()[1..] {
        sentinel.kill();
    }
    // The only replica acknowledges every renewal.
    assert_eq!(loss(&guard).await, LostReason::Unreachable);
}

#[tokio::test]
async fn renewals_without_their_acks_do_not_count() {
    let (servers, locks) = with_acks().await;
    let guard = take(&locks, "a").await;
    servers.servers()[1].stop();
    let error = guard.renew().await.expect_err("no replica has it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    assert_eq!(loss(&guard).await, LostReason::Unreachable);
    servers.servers()[1].resume();
    let guard = hold(&locks, "b").await;
    stays_held(&guard, LEASE * 2).await;
    guard.release().await.expect("it is released");
}

#[tokio::test]
async fn sentinels_are_not_asked_for_each_grant() {
    let (servers, locks) = light().await;
    let asked = || -> u64 {
        let sentinels = servers.sentinels().iter();
        let asked = sentinels.map(|sentinel| count(sentinel, "total_commands_processed"));
        asked.sum()
    };
    let before = asked();
    for _ in 0..500 {
        pass(&locks, "a").await;
    }
    // With what they ask each other, and this test.
    let asked = asked() - before;
    assert!(asked < 250, "{asked} commands for 500 grants");
}
