//! Locks for code without `async`.

use std::panic;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use polylock_core::blocking::{BlockingLock, block_on};
use polylock_core::memory::Memory;
use polylock_core::{AcquireRequest, ErrorKind, LockKey, LostReason, Mode, Released, Wait};

#[test]
fn a_held_lock_is_waited_for_as_long_as_asked() {
    let locks = BlockingLock::new(Memory::new());
    let guard = locks.lock("key").unwrap();
    assert!(locks.try_lock("key").unwrap().is_none());
    let begin = Instant::now();
    let wait = Duration::from_millis(200);
    let error = locks.lock_within("key", wait).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert!(
        begin.elapsed() >= wait,
        "timed out after {:?}",
        begin.elapsed()
    );
    let waiter = thread::spawn({
        let locks = locks.clone();
        move || locks.lock("key").unwrap().fencing_token()
    });
    let first = guard.fencing_token();
    // Dropped by a thread without a runtime.
    drop(guard);
    assert!(waiter.join().unwrap() > first);
    assert!(locks.shutdown(Duration::from_secs(5)));
    assert!(locks.try_lock("key").unwrap().is_some());
}

/// The thread leaves its lock to the engine, which keeps it for more than twice the ttl.
#[test]
fn a_lock_is_renewed_while_its_thread_sleeps() {
    let begin = Instant::now();
    let locks = BlockingLock::new(Memory::new());
    let request = AcquireRequest::new(LockKey::new("key").unwrap())
        .with_ttl(Duration::from_secs(1))
        .with_wait(Wait::Never);
    let guard = locks.acquire(request).unwrap();
    while guard.valid_until().unwrap() < begin + Duration::from_secs(2) {
        assert!(begin.elapsed() < Duration::from_secs(10), "not renewed");
        thread::sleep(Duration::from_millis(5));
    }
    guard.ensure_held().unwrap();
    guard.renew().unwrap();
    let left = guard.valid_until().unwrap() - Instant::now();
    assert!(
        left > Duration::from_millis(500) && left <= Duration::from_secs(1),
        "a renewed lock of 1 s is held for {left:?}"
    );
}

#[test]
fn the_options_of_a_request_apply() {
    let locks = BlockingLock::new(Memory::new());
    let shared = || {
        let key = LockKey::new("key").unwrap();
        locks.acquire(AcquireRequest::new(key).with_mode(Mode::Shared))
    };
    let mut writer = locks.lock("key").unwrap();
    writer.downgrade().unwrap();
    let reader = shared().unwrap();
    assert_eq!(reader.key().as_str(), "key");
    assert!(locks.try_lock("key").unwrap().is_none());
    writer.release().unwrap();
    block_on(reader.into_async().release()).unwrap();
    assert!(locks.try_lock("key").unwrap().is_some());
}

#[test]
fn another_thread_waits_for_the_loss() {
    let memory = Memory::new();
    let locks = BlockingLock::new(memory);
    let request = AcquireRequest::new(LockKey::new("key").unwrap())
        .with_ttl(Duration::from_secs(1))
        .with_max_hold(Duration::from_millis(300));
    let guard = locks.acquire(request).unwrap();
    let lost = guard.lost();
    let waits = async move { tokio::time::timeout(Duration::from_secs(60), lost).await };
    let reason = thread::spawn(move || block_on(waits)).join().unwrap();
    let reason = reason.expect("it is lost in time");
    assert_eq!(reason, LostReason::MaxHold);
    assert!(!guard.is_held());
    assert_eq!(guard.ensure_held().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().unwrap(), Released::AlreadyLost);
}

#[tokio::test]
async fn async_code_may_block_where_tokio_allows_it_and_nowhere_else() {
    let locks = BlockingLock::new(Memory::new());
    let inside = locks.clone();
    let token = tokio::task::spawn_blocking(move || inside.lock("key").unwrap().fencing_token());
    assert!(token.await.unwrap().is_some());
    assert!(locks.as_async().shutdown(Duration::from_secs(5)).await);

    let (report, panics) = mpsc::channel();
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let location = info.location().map(|at| (at.file().to_owned(), at.line()));
        drop(report.send(location));
    }));
    let line = line!() + 1;
    let blocked = tokio::spawn(async move { drop(locks.try_lock("key")) }).await;
    panic::set_hook(before);
    let panic = blocked.unwrap_err().into_panic();
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    assert!(
        message.is_some_and(|message| message.contains("within a runtime")),
        "{message:?}"
    );
    let caller = (file!().to_owned(), line);
    assert_eq!(panics.try_iter().flatten().collect::<Vec<_>>(), [caller]);
}
