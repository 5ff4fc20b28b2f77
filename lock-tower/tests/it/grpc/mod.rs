//! The layer before services of gRPC, by tonic.

mod bank;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use lock_core::engine::Engine;
use lock_core::memory::Memory;
use lock_tower::{KeyLockLayer, Locker, LockerBuilder, SafeMethods};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower::{Layer as _, ServiceExt as _};

use self::bank::{Bank, Pause, Server, by_account, call};
use crate::support::{InTime as _, until};

const CALLS: u64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_one_key_are_serial_behind_a_layer_of_the_server() {
    let bank = Bank::default();
    let server = behind_the_server(&bank, &locker(|locker| locker));
    are_serial(&bank, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_one_key_are_serial_behind_a_layer_of_the_service() {
    let bank = Bank::default();
    let server = around_the_service(&bank, &locker(|locker| locker));
    are_serial(&bank, &server).await;
}

async fn are_serial(bank: &Bank, server: &Server) {
    let calls = [server.client().await, server.client().await].map(|mut client| async move {
        let mut tokens = Vec::new();
        for _ in 0..CALLS {
            tokens.push(client.add(call("joint")).await.expect("it is served"));
        }
        tokens
    });
    let calls: JoinSet<_> = calls.into_iter().collect();
    let mut tokens = calls.join_all().await.concat();
    assert_eq!(bank.overlaps(), 0);
    assert_eq!(bank.balance(), 2 * CALLS);
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len() as u64, 2 * CALLS);
}

#[tokio::test]
async fn calls_of_two_keys_meet() {
    let bank = Bank::pausing(Pause::Meet(Barrier::new(2)));
    let server = behind_the_server(&bank, &locker(|locker| locker));
    let (mut one, mut other) = (server.client().await, server.client().await);
    let both = async { tokio::join!(one.add(call("hers")), other.add(call("his"))) };
    let (one, other) = both.in_time("both calls, inside at the same time").await;
    assert!(one.unwrap() != other.unwrap());
    assert_eq!(bank.overlaps(), 1);
}

#[tokio::test]
async fn a_busy_key_is_aborted_with_the_time_to_come_back() {
    let bank = Bank::staying();
    let after = Duration::from_millis(1500);
    let locker = locker(|locker| locker.try_only().retry_after(after));
    for server in [
        behind_the_server(&bank, &locker),
        around_the_service(&bank, &locker),
    ] {
        let (mut one, mut other) = (server.client().await, server.client().await);
        let first = tokio::spawn(async move { one.add(call("joint")).await });
        bank.entered().await;
        let refused = other.add(call("joint")).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted);
        assert_eq!(refused.message(), "the lock is held");
        let details = refused.get_error_details();
        let retry = details.retry_info().expect("it is worth another try");
        assert_eq!(retry.retry_delay, Some(after));
        let info = details.error_info().expect("it has a name");
        assert_eq!((&*info.reason, &*info.domain), ("LOCK_BUSY", "polylock"));
        bank.go_on();
        first.answered().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_call_by_get_takes_the_lock_like_others() {
    let locker = locker(LockerBuilder::try_only);
    for serve in [behind_the_server, around_the_service] {
        let bank = Bank::default();
        let server = serve(&bank, &locker);
        let held = locker.lock("joint").await.unwrap();
        let refused = server.call_by_get("joint", "text/plain").await;
        assert_eq!(refused.unwrap_err(), StatusCode::CONFLICT);
        let refused = server.call_by_get("joint", "application/grpc").await;
        let refused = refused.unwrap();
        assert_eq!(refused.code(), Code::Aborted, "{refused:?}");
        assert_eq!(
            refused.get_details_error_info().unwrap().reason,
            "LOCK_BUSY"
        );
        assert_eq!(bank.balance(), 0);
        held.release().await.unwrap();
        // Both are calls: the service takes them for that.
        for content_type in ["text/plain", "application/grpc"] {
            let served = server.call_by_get("joint", content_type).await.unwrap();
            assert_eq!(served.code(), Code::Ok, "{served:?}");
        }
        assert_eq!(bank.balance(), 2);
    }
}

#[tokio::test]
async fn a_call_without_a_key_is_an_invalid_argument() {
    let server = behind_the_server(&Bank::default(), &locker(|locker| locker));
    let refused = server.client().await.add(tonic::Request::new(1)).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().ends_with("the metadata name no account"));
    assert!(refused.get_details_retry_info().is_none());
}

#[tokio::test]
async fn a_call_does_not_wait_beyond_its_deadline() {
    let bank = Bank::staying();
    let locker = locker(|locker| locker.wait(Duration::from_secs(600)));
    let server = behind_the_server(&bank, &locker);
    let (mut one, mut other) = (server.client().await, server.client().await);
    let first = tokio::spawn(async move { one.add(call("joint")).await });
    bank.entered().await;
    let mut hurried = call("joint");
    hurried.set_timeout(Duration::from_millis(100));
    // The server and the client look at the same time; either may be the first to end it.
    let code = other.add(hurried).await.unwrap_err().code();
    let ends = [Code::Aborted, Code::Cancelled, Code::DeadlineExceeded];
    assert!(ends.contains(&code), "the call ended with {code}");
    until("the call has left the queue", || locker.waiters() == 0).await;
    bank.go_on();
    first.answered().await.unwrap().unwrap();
    until("the lock is free", || locker.live_keys() == 0).await;
    assert_eq!(bank.balance(), 1);
}

/// Without a client that ends the call from its side.
#[tokio::test(start_paused = true)]
async fn the_server_itself_ends_the_wait_at_the_deadline() {
    let locker = locker(|locker| locker.wait(Duration::from_secs(600)));
    let held = locker.lock("joint").await.unwrap();
    let bank = layer(&locker).layer(Bank::default());
    let call = Request::post("/bank.Bank/Add")
        .header("content-type", "application/grpc")
        .header("account", "joint")
        .header("grpc-timeout", "100m");
    let call = call.body(tonic::body::Body::empty()).unwrap();
    let began = Instant::now();
    let answer = bank.oneshot(call).answered().await.unwrap();
    let (soon, late) = (Duration::from_millis(100), Duration::from_millis(110));
    let after = began.elapsed();
    assert!(
        (soon..late).contains(&after),
        "a deadline of 100 ms ended the wait after {after:?}"
    );
    let status = status(answer.headers());
    assert_eq!(status.code(), Code::Aborted);
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.reason, "LOCK_TIMEOUT");
    assert_eq!(locker.waiters(), 0);
    held.release().await.unwrap();
    assert_eq!(locker.live_keys(), 0);
}

#[tokio::test]
async fn a_rejection_in_a_handler_is_a_status() {
    async fn handler(locker: &Locker) -> Result<(), Status> {
        let held = locker.lock("joint").await?;
        Ok(held.ensure_held()?)
    }
    let locker = locker(LockerBuilder::try_only);
    let held = locker.lock("joint").await.unwrap();
    let status = handler(&locker).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.get_details_retry_info().is_some());
    held.release().await.unwrap();
}

fn locker(set: impl FnOnce(LockerBuilder) -> LockerBuilder) -> Locker {
    let engine = Engine::on_current_runtime("memory");
    let locks = Arc::new(Memory::with_engine(engine));
    let locker = set(Locker::builder(locks, "accounts"));
    locker.build().expect("the options go together")
}

/// tonic looks neither at the method nor at the content type: a `GET` that does not say that it is a
/// call is one, and would pass a layer that lets safe methods pass.
fn layer(locker: &Locker) -> KeyLockLayer {
    let layer = KeyLockLayer::new(locker.clone(), by_account());
    let layer = layer.with_safe_methods(SafeMethods::Exclusive);
    layer.expect("every backend has exclusive locks")
}

fn behind_the_server(bank: &Bank, locker: &Locker) -> Server {
    let layer = layer(locker);
    let mut server = tonic::transport::Server::builder().layer(layer);
    let router = server.add_service(bank.clone());
    Server::start(|incoming| router.serve_with_incoming(incoming))
}

fn around_the_service(bank: &Bank, locker: &Locker) -> Server {
    let service = layer(locker).layer(bank.clone());
    let router = tonic::transport::Server::builder().add_service(service);
    Server::start(|incoming| router.serve_with_incoming(incoming))
}

fn status(headers: &HeaderMap) -> Status {
    Status::from_header_map(headers).expect("a status in the head")
}
