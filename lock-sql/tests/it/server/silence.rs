//! A network that loses all packets: holders learn of the loss before the server grants the next lock.

use std::time::Duration;

use lock_testkit::proxy::Direction;
use polylock_core::{DistributedLock as _, LostReason};
use tokio::time::Instant;

use crate::server::support::{SESSION, SOON, Site, assert_free, loss, sessions, take};

/// Neither requests nor replies arrive, nor do the ends of connections.
async fn a_holder_behind_a_black_hole_is_out_before_the_next_is_in(site: Site) {
    for direction in [Direction::Both, Direction::Replies, Direction::Requests] {
        let mut after = in_a_black_hole(&site, direction).await;
        // A machine that stalls signals the loss late, or grants the lock late.
        for _ in 0..2 {
            if after.0 >= SESSION || after.1 >= GRANTED_WITHIN {
                after = in_a_black_hole(&site, direction).await;
            }
        }
        let (lost, granted) = after;
        assert!(lost < SESSION, "{direction:?}: {lost:?}");
        assert!(granted < GRANTED_WITHIN, "{direction:?}: {granted:?}");
    }
}

/// After which time the holder learns of the loss, and after which time the next one is granted the lock.
async fn in_a_black_hole(site: &Site, direction: Direction) -> (Duration, Duration) {
    let proxy = site.proxy();
    let locks = site.open_at(proxy.port()).await;
    let guard = take(&locks, "job").await;
    let token = guard.fencing_token();
    let next = site.open().await;
    proxy.refuse();
    proxy.hold(direction);
    let began = Instant::now();
    let waiting = tokio::spawn(async move { take(&next, "job").await });
    let (reason, lost) = loss(&guard, SESSION + SOON).await;
    assert_eq!(reason, LostReason::Unreachable, "{direction:?}");
    let next = waiting.await.expect("it is granted");
    assert!(!guard.is_held(), "two holders");
    let granted = began.elapsed();
    assert!(next.fencing_token() > token);
    proxy.accept();
    proxy.resume(Direction::Both);
    drop(guard);
    assert!(locks.shutdown(SOON).await && next.is_held());
    next.release().await.expect("it is released");
    assert_free(site, "job").await;
    site.assert_unlocked().await;
    (lost, granted)
}

sessions!(a_holder_behind_a_black_hole_is_out_before_the_next_is_in);

/// The server ends the session, and notifies the waiter.
const GRANTED_WITHIN: Duration = SESSION.saturating_add(Duration::from_secs(2));
