//! A lock that outlasts its release.

use std::time::Duration;

use polylock_core::memory::{Fault, Request};
use polylock_core::prelude::*;
use tokio::time::Instant;

use super::fake::Fake;
use crate::support::{memory, secs};

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_under_way_at_the_release_does_not_cut_it() {
    let locks = Fake::new();
    let request = locks.request("k").ttl(secs(10)).min_hold(secs(60));
    let guard = request.acquire().await.unwrap();
    locks.state().delay = Duration::from_millis(500);
    tokio::time::sleep(Duration::from_millis(3_400)).await;
    assert_eq!(locks.state().renewals, 0, "it is on its way");
    locks.state().delay = Duration::ZERO;
    guard.release().await.unwrap();
    tokio::time::sleep(secs(55)).await;
    assert!(locks.is_taken());
    tokio::time::sleep(secs(2)).await;
    assert!(!locks.is_taken());
}

#[tokio::test(start_paused = true)]
async fn its_request_is_repeated_until_it_is_answered() {
    for fault in [Fault::LostRequest, Fault::LostReply, Fault::Silence] {
        let locks = memory();
        let began = Instant::now();
        let request = locks.request("k").ttl(secs(10)).min_hold(secs(60));
        let guard = request.acquire().await.unwrap();
        for _ in 0..3 {
            locks.faults().plan(Request::Renew, fault);
        }
        guard.release().await.unwrap_err();
        let other = locks.client();
        let next = other.request("k").wait(Wait::Forever).acquire().await;
        drop(next.unwrap());
        let after = began.elapsed();
        assert!(
            (secs(60)..secs(62)).contains(&after),
            "{fault:?}: {after:?}"
        );
    }
}
