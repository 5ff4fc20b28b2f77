//! A server whose clock jumps changes nothing.

use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use tokio::time::sleep;

use crate::support::{Place, SESSION, granted, ms, release, release_clean, request, take, token};

/// When the server says that the first node of a lock was created, in seconds.
async fn created(place: &Place, name: &str) -> i64 {
    place.tree().stat(name, 0).await.ctime / 1_000
}

#[tokio::test]
async fn a_server_whose_clock_jumps_by_an_hour_changes_nothing() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new().with_clock());
    let place = Place::of(&server).await;
    let (locks, other) = (place.behind_proxy().await, place.client().await);
    let probe = take(&locks, "probe").await;
    let now = created(&place, "probe").await;
    release(probe).await;
    let mut guard = take(&locks, "a").await;
    for hours in [1, -1, 0] {
        let waiter = place.waiter(&other, request("a")).await;
        server.set_clock_offset(hours * 3_600);
        // Several heartbeats, and longer than a session lasts.
        sleep(SESSION + ms(1_000)).await;
        assert!(guard.is_held(), "{hours}: {:?}", guard.lost().reason());
        assert!(!waiter.is_finished(), "{hours}: two hold the lock");
        let probe = take(&locks, "probe").await;
        let shift = created(&place, "probe").await - now - hours * 3_600;
        assert!(
            (0..60).contains(&shift),
            "the clock has not jumped: {shift}"
        );
        release(probe).await;
        let before = token(&guard);
        release_clean(guard).await;
        let next = granted(waiter).await;
        assert!(token(&next) > before, "the clock jumped by {hours} hours");
        drop(next);
        place.assert_nothing_left(&[&locks, &other], "a").await;
        guard = take(&locks, "a").await;
    }
}
