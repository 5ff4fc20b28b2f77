//! Leases last as long as they are renewed, and no longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use polylock_core::{DistributedLockExt, ErrorKind, LostReason, Mode, Released};
use tokio::time::Instant;

use super::Case;
use super::case::SOON;
use super::lost::signaled;
use super::support::{extended, granted, on_a_thread, released, renewed};

/// A lock that is not released stays held for longer than its ttl.
pub async fn renewal_keeps_a_lock_beyond_its_ttl(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let until = Instant::now() + case.ttl().mul_f64(2.2);
    while Instant::now() < until {
        assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
        let attempt = other.try_lock(&key).await.expect("contention is no error");
        assert!(attempt.is_none(), "two hold the lock");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    guard.release().await.expect("a held lock is released");
}

/// Renewal looks after many locks of one client at a time.
pub async fn renewal_keeps_many_locks(case: Case) {
    let (client, other) = (case.client().await, case.client().await);
    let mut guards = Vec::new();
    for _ in 0..client.capabilities().max_locks.min(50) {
        guards.push(case.lock(&client, &case.key()).await);
    }
    tokio::time::sleep(case.ttl().mul_f64(1.5)).await;
    for guard in guards {
        assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
        let attempt = other.request(guard.key()).ttl(case.ttl()).try_acquire();
        let taken = attempt.await.expect("contention is no error");
        assert!(taken.is_none(), "another client got the lock: {taken:?}");
        guard.release().await.expect("a held lock is released");
    }
}

/// A lease without renewals is lost at its end, and the lock is free.
pub async fn a_lease_without_renewal_runs_out(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lease(&client, &key).await;
    case.assert_taken(&key).await;
    let reason = signaled(&guard, case.after_death()).await;
    assert_eq!(reason, LostReason::Expired);
    assert!(!guard.is_held());
    case.assert_free_within(&key, SOON).await;
}

/// The holder may extend its lease itself.
pub async fn manual_renewal_extends_the_lease(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lease(&client, &key).await;
    for _ in 0..3 {
        tokio::time::sleep(case.ttl().mul_f64(0.5)).await;
        let before = guard.valid_until().expect("a lease has an end");
        renewed(&guard).await;
        assert!(guard.valid_until().expect("a lease has an end") > before);
    }
    case.assert_taken(&key).await;
    guard.release().await.expect("a held lock is released");
}

/// A lease that its holder extends once lasts for the time that it asked for, and no longer.
pub async fn an_extended_lease_lasts_as_long_as_was_asked_for(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lease(&client, &key).await;
    let long = case.ttl().mul_f64(2.5);
    let before = extended(&guard, long).await;
    let until = guard.valid_until().expect("a lease has an end");
    let longest = before + long.mul_f64(0.96);
    let lasts = until - before;
    assert!(
        until > before + long / 2 && until <= longest,
        "valid for {lasts:?}"
    );
    tokio::time::sleep_until(before + case.ttl().mul_f64(1.6)).await;
    case.assert_kept(&guard).await;
    let reason = signaled(&guard, case.after_death() * 2).await;
    assert_eq!(reason, LostReason::Expired);
    case.assert_free_within(&key, SOON).await;
}

/// A lease that its holder renews or extends excludes other clients until its new end.
pub async fn a_renewed_lease_excludes_until_its_end(case: Case) {
    let (holder, other) = (case.client().await, case.client().await);
    let excludes = async |longer: Option<Duration>| {
        let key = case.key();
        let guard = case.lease(&holder, &key).await;
        // Early enough for a store that thinks that most of the lease is enough.
        tokio::time::sleep(case.ttl().mul_f64(0.35)).await;
        match longer {
            Some(ttl) => extended(&guard, ttl).await,
            None => renewed(&guard).await,
        };
        let request = case.request_within(&key, case.after_death() * 2);
        let next = granted(&other, &request).await;
        assert!(!guard.is_held(), "two hold the lock");
        next.release().await.expect("a held lock is released");
    };
    tokio::join!(excludes(None), excludes(Some(case.ttl() * 2)));
}

/// Renewals after an extension do not shorten the lease, not even a shared one.
pub async fn a_renewal_cuts_no_lease_that_was_extended(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let mut modes = vec![Mode::Exclusive];
    modes.extend(client.capabilities().shared.then_some(Mode::Shared));
    for mode in modes {
        let request = case.unrenewed(&key);
        let guard = granted(&client, &request.with_mode(mode)).await;
        let long = case.ttl() * 3;
        let before = extended(&guard, long).await;
        let until = guard.valid_until().expect("a lease has an end");
        renewed(&guard).await;
        let after = guard.valid_until().expect("a lease has an end");
        assert!(after + Duration::from_millis(5) >= until, "{mode:?}");
        tokio::time::sleep_until(before + case.ttl().mul_f64(1.6)).await;
        case.assert_kept(&guard).await;
        guard.release().await.expect("a held lock is released");
        case.assert_free(&key).await;
    }
}

/// An extension that the lease cannot have is refused, and costs no lock.
pub async fn an_extension_that_cannot_be_kept_is_refused(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let max_hold = Duration::from_secs(600);
    let request = case.request(&key).with_max_hold(max_hold);
    let guard = granted(&client, &request).await;
    for ttl in [max_hold + Duration::from_nanos(1), Duration::MAX] {
        let error = guard.renew_for(ttl).await.expect_err("it was extended");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        assert!(!error.is_outcome_unknown(), "{error:?}");
    }
    assert!(guard.is_held(), "the refusal cost the lock");
    guard.release().await.expect("a held lock is released");
}

/// A guard is never valid for longer than the ttl counted from before the request, and less than
/// that by a margin.
pub async fn a_guard_is_valid_for_less_than_the_ttl_from_before_the_request(case: Case) {
    let (client, key) = (case.client().await, case.key());
    // A client may connect first.
    let first = case.lock(&client, &key).await;
    assert_eq!(released(first).await, Released::Clean);
    let before = Instant::now();
    let guard = case.lease(&client, &key).await;
    let until = guard.valid_until().expect("a lease has an end");
    assert!(until > Instant::now(), "granted without any validity");
    let lasts = until.saturating_duration_since(before);
    assert!(lasts <= case.ttl().mul_f64(0.96), "valid for {lasts:?}");
    guard.release().await.expect("a held lock is released");
}

/// A holder that blocks its whole runtime for longer than the ttl keeps its lock.
pub async fn a_blocked_runtime_keeps_its_locks(case: Case) {
    let (key, done) = (case.key(), Arc::new(AtomicBool::new(false)));
    let (taken, locked) = tokio::sync::oneshot::channel();
    let blocked = on_a_thread({
        let (case, key, done) = (case.clone(), key.clone(), Arc::clone(&done));
        move || async move {
            let client = case.client().await;
            let guard = case.lock(&client, &key).await;
            taken.send(()).expect("the test listens");
            std::thread::sleep(case.ttl().mul_f64(1.8));
            let held = guard.is_held();
            done.store(true, Ordering::SeqCst);
            guard.release().await.expect("a held lock is released");
            held
        }
    });
    locked.await.expect("the holder panicked");
    let observer = case.client().await;
    while !done.load(Ordering::SeqCst) {
        let attempt = observer.try_lock(&key).await;
        let is_refused = attempt.expect("contention is no error").is_none();
        let is_over = done.load(Ordering::SeqCst);
        assert!(is_refused || is_over, "two hold the lock");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let held = blocked.await.expect("the holder panicked");
    assert!(held, "lost while the runtime was blocked");
    case.assert_free_within(&key, SOON).await;
}

/// The warning comes before the loss, by as much as was asked for.
pub async fn expiring_warns_before_the_loss(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lease(&client, &key).await;
    let ahead = case.ttl().mul_f64(0.4);
    let until = guard.valid_until().expect("a lease has an end");
    guard.expiring(ahead).await;
    let left = until.saturating_duration_since(Instant::now());
    assert!(guard.is_held(), "the warning came after the loss");
    assert!(
        left <= ahead + Duration::from_millis(5),
        "warned too early, with {left:?} left"
    );
    guard.release().await.expect("a held lock is released");
}

/// There is no warning as long as renewal works.
pub async fn expiring_does_not_warn_of_a_lock_that_is_renewed(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let warning = guard.expiring(case.ttl() / 10);
    let warned = tokio::time::timeout(case.ttl().mul_f64(1.5), warning).await;
    assert!(warned.is_err(), "warned of {guard:?}");
    guard.release().await.expect("a held lock is released");
}

/// A signal without a listener costs nothing and changes nothing.
pub async fn a_held_lock_is_not_signaled(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let mut signal = guard.lost().into_future();
    let pending = std::future::poll_fn(|cx| Poll::Ready(signal.as_mut().poll(cx).is_pending()));
    assert!(pending.await && guard.lost().reason().is_none());
    guard.release().await.expect("a held lock is released");
}
