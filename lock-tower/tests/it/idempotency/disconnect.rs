//! Clients that go away.

use std::time::Duration;

use lock_tower::{LockerBuilder, OnDisconnect};

use super::support::{Payments, Scene, post};
use crate::support::{send, until};

const TIME: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn who_went_away_while_it_was_handled_finds_its_response() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let wait = |locker: LockerBuilder| locker.wait(Duration::from_secs(5));
    let service = payments.slow(&scene.layer_with(wait), TIME);
    let gone = tokio::time::timeout(TIME / 2, send(&service, post("a"))).await;
    assert!(gone.is_err());
    let again = send(&service, post("a")).await;
    assert!(again.is_replayed());
    assert_eq!((again.body, payments.charged()), ("charge 1".to_owned(), 1));
}

#[tokio::test(start_paused = true)]
async fn its_handler_can_be_cancelled_and_begins_again() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let layer = scene.layer_with(|locker| locker.wait(Duration::from_secs(5)));
    let service = payments.slow(&layer.with_on_disconnect(OnDisconnect::Cancel), TIME);
    let gone = tokio::time::timeout(TIME / 2, send(&service, post("a"))).await;
    assert!(gone.is_err());
    assert_eq!(send(&service, post("a")).await.body, "charge 2");
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
