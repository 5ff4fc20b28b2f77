//! Requests of one owner, under virtual time.

use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};

use polylock_core::layers::LocalQueue;
use polylock_core::memory::Memory;
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, Owner};

use super::server::fake::{Call, Fake};
use super::support::{
    InterruptedClock, engine, in_time, key, memory, queued, secs, settle, start, suspendable,
};

#[tokio::test(start_paused = true)]
async fn requests_of_one_owner_enter_together_wherever_they_stand_in_line() {
    for seated_here in [true, false] {
        let (store, locks) = queued();
        let held = if seated_here {
            locks.lock("k").await.unwrap()
        } else {
            store.lock("k").await.unwrap()
        };
        let plain = AcquireRequest::new(key());
        let owned = plain.clone().with_owner(Owner::new());
        let first = start(&locks, owned.clone());
        settle().await;
        let other = start(&locks, plain);
        settle().await;
        let second = start(&locks, owned);
        settle().await;
        drop(held);
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert_eq!(first.fencing_token(), second.fencing_token());
        drop(first);
        settle().await;
        assert!(second.is_held() && !other.is_finished());
        drop(second);
        drop(other.await.unwrap());
        assert_eq!((locks.live_keys(), store.live_keys()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_does_not_enter_a_lock_that_it_made_shared() {
    let locks = LocalQueue::new(Arc::new(memory()));
    let owner = Owner::new();
    let mut outer = locks.request("k").owner(&owner).acquire().await.unwrap();
    let inner = locks.request("k").owner(&owner).acquire().await.unwrap();
    let refused = outer.downgrade().await.unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::Unsupported,
        "the inner guard counts on it"
    );
    drop(inner);
    outer.downgrade().await.unwrap();
    let reader = locks.request("k").shared().acquire().await.unwrap();
    let entered = locks.request("k").owner(&owner).acquire().await;
    assert_eq!(entered.unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(reader.is_held() && outer.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_downgrade_is_refused_stays_exclusive() {
    let (server, locks) = Fake::new().queued();
    let owner = Owner::new();
    let request = AcquireRequest::new(key()).with_owner(owner);
    let mut outer = locks.acquire(&request).await.unwrap();
    for _ in 0..2 {
        let refused = outer.downgrade().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
    }
    let inner = locks.acquire(&request).await.unwrap();
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    drop(inner);
    let next = start(&locks, AcquireRequest::new(key()));
    settle().await;
    drop(outer);
    let next = next.await.unwrap();
    assert!(next.is_held());
    assert_eq!(server.state().sent.last(), Some(&Call::HandOver));
}

#[tokio::test(start_paused = true)]
async fn an_owner_does_not_enter_a_lock_whose_time_is_over() {
    let (engine, clock) = suspendable();
    let locks = LocalQueue::new(Arc::new(Memory::with_engine(engine)));
    let owner = Owner::new();
    let first = locks.request("k").owner(&owner).acquire().await.unwrap();
    clock.suspend(secs(60));
    let again = locks.request("k").owner(&owner).acquire().await.unwrap();
    assert!(again.fencing_token() > first.fencing_token());
    assert!(again.is_held() && !first.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_owner_waits_for_the_end_of_a_shared_lock_whose_time_is_over() {
    let (engine, clock) = suspendable();
    let locks = LocalQueue::new(Arc::new(Memory::with_engine(engine)));
    let owner = Owner::new();
    let mut first = locks.request("k").owner(&owner).acquire().await.unwrap();
    first.downgrade().await.unwrap();
    clock.suspend(secs(60));
    let again = locks.request("k").owner(&owner).acquire();
    let again = in_time("the grant to the owner", again).await.unwrap();
    assert!(again.is_held() && !first.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_guard_becomes_a_ticket_enters_before_or_waits() {
    let (mut entered, mut waited) = (0, 0);
    for read in 1..20 {
        let clock = InterruptedClock::new();
        let locks = LocalQueue::new(Arc::new(Memory::with_engine(engine(&clock))));
        let request = AcquireRequest::new(key()).with_owner(Owner::new());
        let guard = locks.acquire(&request).await.unwrap();
        settle().await;
        let mut again = Box::pin({
            let (locks, request) = (locks.clone(), request.clone());
            async move { locks.acquire(&request).await }
        });
        let (tell, told) = mpsc::channel();
        clock.interrupt_at(read, move |_| {
            let mut cx = Context::from_waker(Waker::noop());
            let polled = again.as_mut().poll(&mut cx);
            tell.send((again, polled)).expect("the test listens");
        });
        let ticket = guard.into_ticket();
        clock.go_on();
        match told.try_recv() {
            Ok((_, Poll::Ready(answer))) => {
                assert!(answer.expect("the owner enters").is_held(), "read {read}");
                let refused = ticket.expect_err("the inner guard counts on the lock");
                assert_eq!(refused.error().kind(), ErrorKind::Unsupported);
                entered += 1;
            }
            Ok((again, Poll::Pending)) => {
                let adopted = locks.adopt(&ticket.unwrap()).await.unwrap();
                adopted.release().await.unwrap();
                let next = in_time("the grant to the waiter", again).await.unwrap();
                assert!(next.is_held(), "read {read}");
                waited += 1;
            }
            // The call is over by then.
            Err(_) => assert!(ticket.is_ok()),
        }
    }
    assert!(
        entered > 0 && waited > 1,
        "{entered} entered, {waited} waited"
    );
}
