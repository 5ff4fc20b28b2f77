//! Futures dropped at every poll leave nothing behind.

use crate::support::{Place, SOON, idle, ms, pass, request, take, waiting};
use lock_testkit::polled;
use lock_testkit::proxy::{Fate, Planned};
use polylock_core::{DistributedLock, Mode};
use tokio::time::Instant;

/// The acquisition and its release take two connections, and the first is slow. Dropped late, the
/// connection has been given up.
#[tokio::test]
async fn a_shutdown_waits_for_an_acquisition_that_its_release_overtook() {
    let place = Place::new();
    let (locks, late) = (place.patient_client().await, ms(1_000));
    for dropped_after in [0, 0, 150, 150] {
        pass(&locks, "a").await;
        let slow = Planned::once(|command| command.is("SET"), Fate::LateRequest(late));
        place.proxy().add(&slow);
        let acquisition = waiting(&locks, request("a"));
        slow.met(SOON).await;
        let met = Instant::now();
        tokio::time::sleep(ms(dropped_after)).await;
        acquisition.abort();
        let ended = acquisition
            .await
            .expect_err("it was granted before its time");
        assert!(ended.is_cancelled(), "{ended}");
        let began = Instant::now();
        idle(&locks).await;
        let waited = began.elapsed();
        // Requests that are still under way would arrive now.
        tokio::time::sleep_until(met + late + ms(100)).await;
        assert_eq!(
            place.remains("a"),
            Vec::<String>::new(),
            "dropped after {dropped_after} ms, shut down within {waited:?}"
        );
    }
}

/// Futures that the conformance suite does not drop.
#[tokio::test]
async fn requests_dropped_at_every_poll_leave_nothing() {
    let place = Place::new();
    let locks = place.elsewhere().await;
    for polls in 1..=16 {
        println!("{polls} polls");
        for _ in 0..4 {
            let shared = request("a").with_mode(Mode::Shared);
            drop(polled(polls, locks.acquire(&shared)).await);
            place.assert_nothing_left(&[&locks], "a").await;

            let guard = take(&locks, "a").await;
            drop(polled(polls, guard.renew()).await);
            drop(guard);
            place.assert_nothing_left(&[&locks], "a").await;
        }
    }
    place.assert_free("a").await;
}
