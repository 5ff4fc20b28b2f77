//! Clients that go away.

use std::time::Duration;

use polylock_tower::{LockerBuilder, OnDisconnect};

use super::support::{Payments, Scene, post};
use crate::support::{send, until};

const TIME: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn who_went_away_while_it_was_handled_finds_its_response_unless_that_was_cancelled() {
    for then in [OnDisconnect::RunToCompletion, OnDisconnect::Cancel] {
        let (scene, payments) = (Scene::new(), Payments::default());
        let wait = |locker: LockerBuilder| locker.wait(Duration::from_secs(5));
        let layer = scene.layer_with(wait).with_on_disconnect(then);
        let service = payments.slow(&layer, TIME);
        let gone = tokio::time::timeout(TIME / 2, send(&service, post("a"))).await;
        assert!(gone.is_err());
        let again = send(&service, post("a")).await;
        let is_kept = then == OnDisconnect::RunToCompletion;
        assert_eq!(again.is_replayed(), is_kept, "{then:?}");
        assert_eq!(payments.charged(), if is_kept { 1 } else { 2 }, "{then:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_went_away_while_it_waited_is_not_handled() {
    let (scene, payments) = (Scene::new(), Payments::failing(502));
    let layer = scene.layer_with(|locker| locker.wait(Duration::from_secs(5)));
    let service = payments.slow(&layer, TIME);
    let second = async {
        until("the first request is handled", || payments.charged() > 0).await;
        tokio::time::timeout(TIME / 2, send(&service, post("a"))).await
    };
    let (first, second) = tokio::join!(send(&service, post("a")), second);
    assert_eq!(first.status, 502);
    assert!(second.is_err());
    tokio::time::sleep(TIME * 2).await;
    assert_eq!(payments.charged(), 1);
    assert_eq!(layer.locker().live_keys(), 0);
}
