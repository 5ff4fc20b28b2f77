//! Shared and separate renewals of one client's locks.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_testkit::locks::renewed_after;
use polylock_core::engine::LeaseId;
use polylock_core::memory::{Fault, Request};
use polylock_core::{
    AcquireRequest, DistributedLock, LeaseState, LockGuard, LostReason, Renewal, Wait,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::{
    EtcdOptions, EtcdServer, Place, SOON, TTL, acquire, admin, granted, is_grant, is_renewal,
    is_revocation, is_write, key, long, loss, ms, release, renewed, request, until,
};

/// All locks of one ttl are attached to one lease of etcd, and cost one read and one keep-alive at a time.
#[tokio::test(flavor = "multi_thread")]
async fn locks_of_one_ttl_are_renewed_together() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let mut guards = Vec::new();
    for n in 0..40 {
        guards.push(acquire(&locks, &format!("a{n}")).await);
    }
    let mut leases = std::collections::BTreeSet::new();
    for n in 0..40 {
        leases.extend(place.tree().leases(&format!("a{n}")).await);
    }
    let (before, began) = (place.count(Request::Renew), Instant::now());
    let renewals = || place.count(Request::Renew) - before;
    tokio::time::sleep(TTL).await;
    until("there are three renewals", async || renewals() >= 3).await;
    let (renewals, passed) = (renewals(), began.elapsed());
    assert!(guards.iter().all(LockGuard::is_held));
    // Three periods of up to eight batches each, and more than one lease where acquiring has taken long.
    let most = 30.0 * passed.as_secs_f64() / TTL.as_secs_f64();
    assert!(
        renewals as f64 <= most,
        "{renewals} for 40 locks, {passed:?}"
    );
    assert!(leases.len() <= 2, "{leases:?}");
    for guard in guards {
        release(guard).await;
    }
}

/// More locks than one request reads are renewed in one round trip, or a slow server would cost them all.
#[tokio::test(flavor = "multi_thread")]
async fn many_locks_are_renewed_at_a_slow_server() {
    let place = Place::new().await;
    let locks = place.counted().await;
    // A renewal has a second.
    let ttl = Duration::from_secs(10);
    let guards = join_all((0..401).map(|n| {
        let (locks, request) = (&locks, request(&format!("a{n}")).with_ttl(ttl));
        async move { locks.acquire(&request).await.expect("it is free") }
    }));
    let guards = guards.await;
    for _ in 0..200 {
        place
            .counter()
            .plan(Request::Renew, Fault::LateReply(ms(300)));
    }
    let slow = Instant::now();
    for guard in &guards {
        renewed_after(guard, slow, ttl).await;
    }
    join_all(guards.into_iter().map(release)).await;
}

/// Renewals that wait for the keep-alives of one lease of etcd share one. One by one, the last of many locks that
/// move to another lease would have no time left.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_that_wait_for_a_keep_alive_share_one() {
    let server = EtcdServer::start(EtcdOptions::default());
    let place = Place::of(&server).await;
    let locks = place.counted().await;
    let mut guards = Vec::new();
    for n in 0..40 {
        let long = long(&format!("a{n}"));
        guards.push(locks.acquire(&long).await.expect("it is free"));
    }
    let before = keep_alives(&server).await;
    // The first one is held until all of them are waiting.
    place
        .counter()
        .hold(|path, _| path.ends_with("/LeaseKeepAlive"));
    let pass = async {
        place.held().await;
        place.counter().pass();
    };
    tokio::join!(join_all(guards.iter().map(LockGuard::renew)), pass);
    let sent = keep_alives(&server).await - before;
    assert!((1..=10).contains(&sent), "{sent} for 40 renewals");
    for guard in guards {
        release(guard).await;
    }
}

/// How many keep-alives a server has counted.
async fn keep_alives(server: &EtcdServer) -> usize {
    let stream = TcpStream::connect(server.address()).await;
    let (mut stream, mut metrics) = (stream.expect("it listens"), String::new());
    let request = b"GET /metrics HTTP/1.0\r\n\r\n";
    stream.write_all(request).await.expect("it is sent");
    let read = stream.read_to_string(&mut metrics).await;
    read.expect("it answers");
    let name = "etcd_debugging_lease_renewed_total ";
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| value.parse().ok())
        .expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_lock_ends_and_its_neighbors_stay() {
    for is_signal_kept in [false, true] {
        let place = Place::new().await;
        let locks = place.client().await;
        let (left, kept) = (acquire(&locks, "left").await, acquire(&locks, "kept").await);
        let lease = place.tree().leases("kept").await;
        assert_eq!(place.tree().leases("left").await, lease);
        let _signal = is_signal_kept.then(|| left.lost());
        left.abandon();
        let next = place.client().await.acquire(&request("left")).await;
        let next = next.unwrap_or_else(|error| panic!("signal kept: {is_signal_kept}: {error}"));
        release(next).await;
        tokio::time::sleep(TTL * 2).await;
        release(kept).await;
    }
}

/// Its neighbors cannot move to another lease of etcd, and would be lost with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_left_at_a_full_database_ends_once_there_is_space() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let (left, kept) = (acquire(&locks, "left").await, acquire(&locks, "kept").await);
    let lease = place.tree().leases("kept").await;
    assert_eq!(place.tree().leases("left").await, lease);
    let other = place.client().await;
    let request = long("left").with_wait(Wait::AtMost(SOON * 12));
    let waiter = place.waiter(&other, request).await;
    place.counter().fill(is_grant);
    left.abandon();
    tokio::time::sleep(TTL * 3).await;
    assert!(kept.is_held(), "lost: {:?}", kept.lost().reason());
    assert!(!waiter.is_finished(), "the lease that both have has ended");
    place.counter().make_space();
    release(granted(waiter).await).await;
    assert!(kept.is_held(), "lost: {:?}", kept.lost().reason());
    release(kept).await;
}

/// A release that is under way while other locks are renewed moves none of them to another lease of etcd.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_under_way_moves_no_other_lock() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let kept = locks.acquire(&long("kept")).await.expect("it is free");
    let mut left = locks.acquire(&long("left")).await.expect("it is free");
    let former = place.tree().leases("kept").await;
    assert_eq!(place.tree().leases("left").await, former);
    place.counter().hold(is_write);
    tokio::select! {
        downgraded = left.downgrade() => panic!("not held up: {downgraded:?}"),
        () = place.held() => {}
    }
    let renew = async {
        renewed(&kept).await;
        place.counter().pass();
    };
    // The lock is given up, and its release waits for the downgrade.
    let (released, ()) = tokio::join!(left.release(), renew);
    // On a busy machine, it may be late.
    drop(released);
    assert_eq!(place.tree().leases("kept").await, former);
    release(kept).await;
}

/// The release of a lock with a min hold moves that lock to another lease of etcd, and none of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_kept_for_its_min_hold_moves_no_other() {
    let place = Place::new().await;
    let locks = place.client().await;
    let kept = locks.acquire(&long("kept")).await.expect("it is free");
    let short = long("short").with_min_hold(SOON * 2);
    let short = locks.acquire(&short).await.expect("it is free");
    let former = place.tree().leases("kept").await;
    assert_eq!(place.tree().leases("short").await, former);
    // If the last renewal had no reply in its time, it is repeated.
    drop(short.release().await);
    place.moved("short", &former).await;
    renewed(&kept).await;
    assert_eq!(place.tree().leases("kept").await, former);
    release(kept).await;
}

/// A lock that is held for too long ends although its guard is kept, and its neighbors stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_held_for_too_long_ends_beside_one_that_is_renewed() {
    let long = request("a").with_max_hold(ms(500));
    ends_beside_one_that_is_renewed(&long, LostReason::MaxHold).await;
}

/// A lock that its holder renews itself is not kept alive by others.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_not_renewed_ends_beside_one_that_is() {
    let manual = request("a").with_renewal(Renewal::Manual);
    ends_beside_one_that_is_renewed(&manual, LostReason::Expired).await;
}

async fn ends_beside_one_that_is_renewed(request: &AcquireRequest, reason: LostReason) {
    let place = Place::new().await;
    let locks = place.client().await;
    let kept = acquire(&locks, "kept").await;
    let lost = locks.acquire(request).await.expect("it is free");
    assert_eq!(loss(&lost).await, reason);
    release(acquire(&*place.client().await, "a").await).await;
    drop(lost);
    release(kept).await;
}

/// A lock whose lease of etcd was revoked is lost at its next renewal, and so are those beside it; the
/// client goes on with another lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_lease_costs_its_locks_and_no_more() {
    let place = Place::new().await;
    let locks = place.client().await;
    let (one, two) = (acquire(&locks, "one").await, acquire(&locks, "two").await);
    place.tree().end("one").await;
    // The lease is still known to the client when it is asked for another lock.
    release(acquire(&locks, "three").await).await;
    for guard in [one, two] {
        // The request for the third lock may have found out first.
        let reason = loss(&guard).await;
        assert!(
            matches!(reason, LostReason::Broken | LostReason::Stolen),
            "{reason:?}"
        );
    }
    release(acquire(&locks, "one").await).await;
}

/// A loss that is certain is reported although etcd does not say whether the lease has ended too.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_does_not_wait_for_its_reason() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let guard = locks.acquire(&long("a")).await.expect("it is free");
    place.tree().delete("a", 0).await;
    let is_question = |path: &str, _: Option<Request>| path.ends_with("/LeaseTimeToLive");
    place.counter().hold(is_question);
    until("the loss is reported", async || {
        let renewed = guard.renew().await;
        renewed.is_err_and(|error| error.lost_reason() == Some(LostReason::Broken))
    })
    .await;
    // A question that is repeated costs the time that the renewal has.
    assert_eq!(place.counter().seen(is_question), 1);
}

/// A lock that is moved to another lease of etcd, as `lockctl renew` does, moves back to one of its client's.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_renewed_from_outside_is_kept() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.client().await);
    let guard = acquire(&locks, "a").await;
    let id = guard.lease_id().expect("it has an id");
    let long = TTL + Duration::from_secs(2);
    let renewed = admin(&other).renew_lease(&key("a"), id, long).await;
    assert_eq!(renewed.expect("it answers"), LeaseState::Held);
    tokio::time::sleep(long + TTL).await;
    release(guard).await;
}

/// As at a server with a slow disk: a keep-alive and a read need none.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_move_hangs_costs_no_other() {
    let place = Place::new().await;
    let (locks, other) = (place.counted().await, place.client().await);
    let (kept, stuck) = (
        acquire(&locks, "kept").await,
        acquire(&locks, "stuck").await,
    );
    // It has to move back to a lease of its client.
    let id = stuck.lease_id().expect("it has an id");
    let moved = admin(&other).renew_lease(&key("stuck"), id, TTL).await;
    assert_eq!(moved.expect("it answers"), LeaseState::Held);
    let end = Instant::now() + TTL * 2;
    while stuck.is_held() && Instant::now() < end {
        // Each write is held, and given up by the client.
        place.counter().hold(is_write);
        tokio::time::sleep(ms(5)).await;
    }
    assert!(!stuck.is_held(), "it was moved");
    assert!(kept.is_held(), "lost: {:?}", kept.lost().reason());
    place.counter().pass();
    release(kept).await;
}

/// A holder that renews its lock until an administrator has moved the key counts on a whole ttl. The next lease is
/// as long, although the administrator asks for less.
#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_cuts_no_renewal_that_crosses_its_own() {
    let place = Place::new().await;
    let (locks, counted) = (place.client().await, place.counted().await);
    let whole = SOON * 6;
    let manual = request("a").with_ttl(whole).with_renewal(Renewal::Manual);
    let guard = locks.acquire(&manual).await.expect("it is free");
    let (key, id) = (key("a"), guard.lease_id().expect("it has an id"));
    let former = place.tree().leases("a").await;
    place.counter().hold(is_write);
    // Of a lease that was just granted, a second less is left.
    let less = whole - Duration::from_secs(1);
    let renewal = admin(&*counted).renew_lease(&key, id, less);
    let cross = async {
        place.held().await;
        renewed(&guard).await;
        place.counter().pass();
    };
    let (state, ()) = tokio::join!(renewal, cross);
    assert_eq!(state.expect("it answers"), LeaseState::Held);
    let next = place.tree().leases("a").await;
    assert_ne!(next, former, "the key is not moved");
    let known = place
        .tree()
        .client()
        .lease_time_to_live(next[0], None)
        .await;
    let granted = known.expect("it answers").granted_ttl();
    assert!(granted >= 120, "{granted} s");
    assert!(guard.is_held());
    release(guard).await;
}

/// A write of an administrator that another write comes before is repeated with another lease of etcd. The first
/// one is revoked.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_an_administrator_that_crosses_another_leaves_no_lease() {
    let place = Place::new().await;
    let (locks, counted) = (place.client().await, place.counted().await);
    let manual = request("a").with_ttl(SOON).with_renewal(Renewal::Manual);
    let guard = locks.acquire(&manual).await.expect("it is free");
    let (key, id) = (key("a"), guard.lease_id().expect("it has an id"));
    let crossing = async |ttl| {
        place.held().await;
        let renewed = admin(&*locks).renew_lease(&key, id, ttl).await;
        place.counter().pass();
        renewed.expect("it answers")
    };
    let revoked = async || {
        assert!(counted.shutdown(SOON).await, "a revocation does not end");
        place.counter().seen(is_revocation)
    };

    place.counter().hold(is_write);
    let renewal = admin(&*counted).renew_lease(&key, id, SOON * 2);
    let (renewed, crossed) = tokio::join!(renewal, crossing(SOON * 4));
    assert_eq!(renewed.expect("it answers"), LeaseState::Held);
    assert_eq!(crossed, LeaseState::Held);
    assert_eq!(revoked().await, 1);
    assert!(place.tree().time_left("a").await > 60);

    place.counter().hold(|_, kind| kind == Some(Request::Adopt));
    let new = LeaseId::from_bytes([7; 16]);
    let adoption = admin(&*counted).adopt_lease(&key, id, new, SOON * 2);
    let (adopted, crossed) = tokio::join!(adoption, crossing(SOON * 6));
    assert!(adopted.expect("it answers").is_some());
    assert_eq!(crossed, LeaseState::Held);
    assert_eq!(revoked().await, 2);
    assert_eq!(place.tree().line("a").await.len(), 1);
}

/// A renewal that is under way while the lease is extended does not cut the extension, whichever of the two
/// arrives first.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_crosses_an_extension_does_not_cut_it() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let extension = Duration::from_secs(300);
    // Slow renewals have four seconds.
    let long = long("a");
    let guard = locks.acquire(&long).await.expect("it is free");
    place.counter().hold(is_renewal);
    let extend = async {
        place.held().await;
        let extended = guard.renew_for(extension).await;
        place.counter().pass();
        extended
    };
    let (renewed, extended) = tokio::join!(guard.renew(), extend);
    renewed.expect("it is renewed");
    extended.expect("it is extended");
    assert!(place.tree().time_left("a").await > 200);
    release(guard).await;

    let guard = locks.acquire(&long).await.expect("it is free");
    place.counter().hold(is_write);
    let renew = async {
        place.held().await;
        let pass = async {
            tokio::time::sleep(ms(200)).await;
            place.counter().pass();
        };
        tokio::join!(guard.renew(), pass).0
    };
    let (extended, renewed) = tokio::join!(guard.renew_for(extension), renew);
    renewed.expect("it is renewed");
    extended.expect("it is extended");
    assert!(place.tree().time_left("a").await > 200);
    release(guard).await;
}

/// A write that moves a lock to another lease of etcd, and is executed after its client has given it up, is not
/// repeated: at a server with a slow disk, the next one would come too late as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_without_a_reply_is_made_once() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let left = locks.acquire(&long("left")).await.expect("it is free");
    let kept = locks.acquire(&long("kept")).await.expect("it is free");
    let former = place.tree().leases("kept").await;
    let path = place.tree().paths("kept").await.remove(0);
    let written = async || {
        let found = place.tree().client().get(path.clone(), None).await;
        found.expect("it answers").kvs()[0].mod_revision()
    };
    left.abandon();
    place.counter().hold(is_write);
    let error = kept.renew().await.expect_err("it has no reply");
    assert!(error.is_outcome_unknown(), "{error}");
    place.counter().pass();
    place.moved("kept", &former).await;
    let revision = written().await;
    renewed(&kept).await;
    assert_eq!(written().await, revision, "it is moved again");
    release(kept).await;
}

/// A downgrade that waits while a renewal moves the lock to another lease of etcd leaves it there: the former
/// lease ends before the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_that_crosses_a_move_keeps_the_next_lease() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let mut round = 0;
    // A renewal has a second: on a busy machine, it may not have moved the lock by then.
    until("the lock has the next lease", async || {
        round += 1;
        let long = |name: &str| request(name).with_ttl(TTL * 2);
        let (left, name) = (format!("left{round}"), format!("a{round}"));
        let neighbor = locks.acquire(&long(&left)).await.expect("it is free");
        let mut guard = locks.acquire(&long(&name)).await.expect("it is free");
        let former = place.tree().leases(&name).await;
        assert_eq!(place.tree().leases(&left).await, former);
        place.counter().hold(is_grant);
        neighbor.abandon();
        place.held().await;
        let pass = async { place.counter().pass() };
        let (downgraded, ()) = tokio::join!(guard.downgrade(), pass);
        downgraded.expect("it is downgraded");
        let has_moved = place.tree().leases(&name).await != former;
        release(guard).await;
        has_moved
    })
    .await;
}

/// etcd executes the request that reaches the quota of its database, and then answers that it is full.
#[tokio::test(flavor = "multi_thread")]
async fn an_extension_that_reaches_the_quota_is_kept() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let long = request("a").with_ttl(Duration::from_secs(30));
    let guard = locks.acquire(&long).await.expect("it is free");
    let mut waiter = place.waiter(&place.client().await, long).await;
    place.counter().fill(is_write);
    // A renewal would find out that the key is gone.
    place.counter().hold(is_renewal);
    let extended = guard.renew_for(Duration::from_secs(300)).await;
    let granted_early = tokio::time::timeout(ms(300), &mut waiter).await;
    assert!(granted_early.is_err() || !guard.is_held(), "two holders");
    extended.expect("it is extended");
    assert!(place.tree().time_left("a").await > 200);
    release(guard).await;
    release(granted(waiter).await).await;
}

/// A lease of etcd that ends with a holder and its waiter grants the waiter nothing: it has no key then.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_key_ends_with_that_of_the_holder_is_not_granted_the_lock_by_it() {
    let place = Place::new().await;
    let locks = place.client().await;
    // In which order etcd tells the ends is a matter of chance.
    for round in 0..8 {
        let name = format!("a{round}");
        let _guard = acquire(&locks, &name).await;
        let waiter = place.waiter(&locks, request(&name)).await;
        place.tree().end(&name).await;
        let next = granted(waiter).await;
        let paths = place.tree().paths(&name).await;
        let id = next.lease_id().expect("it has an id").to_hex();
        assert!(paths[0].ends_with(id.as_bytes()), "{id} holds no key");
        release(next).await;
    }
}

/// A renewal that began on a runtime that is blocked now does not delay the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_not_polled_stops_no_other() {
    let place = Place::new().await;
    let locks = place.client().await;
    let (stuck, kept) = (
        acquire(&locks, "stuck").await,
        acquire(&locks, "kept").await,
    );
    let mut renewal = Box::pin(stuck.renew());
    assert!(
        (&mut renewal).now_or_never().is_none(),
        "it has no reply yet"
    );
    tokio::time::sleep(TTL * 2).await;
    assert!(kept.is_held(), "lost: {:?}", kept.lost().reason());
    drop(renewal);
    release(stuck).await;
    release(kept).await;
}
