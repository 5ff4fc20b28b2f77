//! Handlers that store their response in the transaction of its effect.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use lock_core::memory::{Memory, Reachable};
use lock_tower::idempotency::{IdempotencyLayer, Put, ResponseSlot, SqlResponses};
use lock_tower::{Locker, WhenUnavailable};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::support::post;

type Paid = Response<Full<Bytes>>;

#[tokio::test]
async fn effect_and_response_are_there_both_or_not_at_all() {
    charge_twice(false, Reachable::Connected).await;
}

#[tokio::test]
async fn the_layer_takes_what_the_handler_has_stored_for_its_own() {
    charge_twice(true, Reachable::Connected).await;
}

#[tokio::test]
async fn it_does_so_without_a_lock_too() {
    charge_twice(true, Reachable::Cut).await;
}

async fn charge_twice(layer_stores: bool, locks: Reachable) {
    let directory = tempfile::tempdir().expect("it works");
    let file = directory.path().join("bank.db");
    let responses = SqlResponses::connect(&format!("sqlite:{}", file.display()))
        .await
        .expect("it works");
    let bank = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&file))
        .await
        .expect("it works");
    sqlx::query("CREATE TABLE charges (cents BIGINT)")
        .execute(&bank)
        .await
        .expect("it works");

    let memory = Memory::new();
    memory.faults().set_reachable(locks);
    let locker = Locker::builder(Arc::new(memory), "pay")
        .when_unavailable(WhenUnavailable::Bypass)
        .build()
        .expect("it works");
    let layer = IdempotencyLayer::new(locker, Arc::new(responses.clone()))
        .with_stored(move |status, _| layer_stores && status.is_success());
    let charge = {
        let bank = bank.clone();
        move |request: Request<Full<Bytes>>| {
            let (bank, responses) = (bank.clone(), responses.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.expect("it works").to_bytes();
                let slot: &ResponseSlot = head.extensions.get().expect("it works");
                assert_eq!(
                    slot.fencing_token().is_some(),
                    locks == Reachable::Connected
                );
                let mut tx = bank.begin_with("BEGIN IMMEDIATE").await.expect("it works");
                let charge = sqlx::query("INSERT INTO charges VALUES (1000)");
                charge.execute(&mut *tx).await.expect("it works");
                let response = Response::new(Bytes::from("paid"));
                let put = responses.put_in(&mut *tx, slot, &response).await;
                assert_eq!(put.expect("it works"), Put::Stored);
                if body == "fails" {
                    tx.rollback().await.expect("it works");
                    let mut response: Paid = response.map(Full::from);
                    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    return Ok(response);
                }
                tx.commit().await.expect("it works");
                Ok::<Paid, Infallible>(response.map(Full::from))
            }
        }
    };
    let service = layer.layer(BoxCloneSyncService::new(service_fn(charge)));
    let send = async |key, body: &'static str| {
        let request = post(key).map(|_| Full::from(body));
        service.clone().oneshot(request).await.expect("it works")
    };
    assert_eq!(send("a", "pays").await.status(), 200);
    let again = send("a", "pays").await;
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(
        again
            .into_body()
            .collect()
            .await
            .expect("it works")
            .to_bytes(),
        "paid"
    );
    for _ in 0..2 {
        assert!(
            send("b", "fails")
                .await
                .headers()
                .get("idempotent-replayed")
                .is_none()
        );
    }
    let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM charges");
    assert_eq!(count.fetch_one(&bank).await.expect("it works"), 1);
}
