//! The layer before services of gRPC, by tonic.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::uri::PathAndQuery;
use http_body_util::{BodyExt as _, Full};
use polylock_tower::{
    HeldLock, KeyError, KeyLock, KeyLockLayer, Keys, Locker, LockerBuilder, SafeMethods,
};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::server::NamedService;
use tonic::transport::Channel;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;
use tower::{Layer as _, Service, ServiceExt as _};

use crate::support::{InTime as _, Scene};

const CALLS: u64 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_one_key_are_serial_behind_a_layer_of_server_or_service() {
    let (behind, around) = (Bank::default(), Bank::default());
    let locker = Scene::new().locker();
    let mut server = tonic::transport::Server::builder().layer(layer(&locker));
    let server = server.add_service(behind.clone());
    let server = start(|incoming| server.serve_with_incoming(incoming));
    assert_serial(&behind, server).await;
    let service = layer(&locker).layer(around.clone());
    let server = tonic::transport::Server::builder().add_service(service);
    let server = start(|incoming| server.serve_with_incoming(incoming));
    assert_serial(&around, server).await;
}

async fn assert_serial(bank: &Bank, server: SocketAddr) {
    let calls = (0..2).map(|_| async move {
        let endpoint = Channel::from_shared(format!("http://{server}"));
        let channel = endpoint.expect("a URL").connect().await;
        let channel = channel.expect("it listens");
        let mut tokens = Vec::new();
        for _ in 0..CALLS {
            tokens.push(add(&channel, call("joint")).await.expect("it is served"));
        }
        tokens
    });
    let calls: JoinSet<_> = calls.collect();
    let mut tokens = calls.join_all().await.concat();
    assert_eq!(bank.balance(), 2 * CALLS);
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len() as u64, 2 * CALLS);
}

/// Serves on a free port, for as long as the runtime of the test lives.
fn start<F>(serve: impl FnOnce(TcpIncoming) -> F) -> SocketAddr
where
    F: Future<Output = Result<(), tonic::transport::Error>> + Send + 'static,
{
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let incoming = TcpIncoming::bind(any_port).expect("a free port");
    let address = incoming.local_addr().expect("it is bound");
    let serving = serve(incoming);
    tokio::spawn(async move { serving.await.expect("the server runs") });
    address
}

#[tokio::test]
async fn a_busy_key_is_aborted_with_the_time_to_come_back_and_another_key_is_served() {
    let after = Duration::from_millis(1500);
    let locker = Scene::new().locker_with(|locker| locker.try_only().retry_after(after));
    let (bank, held) = (Bank::default(), locker.lock("joint").await.unwrap());
    let service = layer(&locker).layer(bank.clone());
    let refused = add(&service, call("joint")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    assert_eq!(refused.message(), "the lock is held");
    let details = refused.get_error_details();
    let retry = details.retry_info().expect("it is worth another try");
    assert_eq!(retry.retry_delay, Some(after));
    let info = details.error_info().expect("it has a name");
    assert_eq!((&*info.reason, &*info.domain), ("LOCK_BUSY", "polylock"));
    assert_eq!(bank.balance(), 0);
    add(&service, call("his")).await.unwrap();
    held.release().await.unwrap();
    add(&service, call("joint")).await.unwrap();
    assert_eq!(bank.balance(), 2);

    let refused = add(&service, Request::new(1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "it has no key");
    assert!(refused.message().ends_with("the metadata name no account"));
    assert!(refused.get_details_retry_info().is_none());
}

#[tokio::test]
async fn a_call_by_get_takes_the_lock_like_others() {
    let locker = Scene::new().locker_with(LockerBuilder::try_only);
    let bank = Bank::default();
    let service = layer(&locker).layer(bank.clone());
    let held = locker.lock("joint").await.unwrap();
    let refused = call_by_get(&service, "text/plain").await;
    assert_eq!(refused.unwrap_err(), StatusCode::CONFLICT);
    let refused = call_by_get(&service, "application/grpc").await.unwrap();
    assert_eq!(refused.code(), Code::Aborted, "{refused:?}");
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(info.reason, "LOCK_BUSY");
    assert_eq!(bank.balance(), 0);
    held.release().await.unwrap();
    // Both are calls: the service takes them for that.
    for content_type in ["text/plain", "application/grpc"] {
        let served = call_by_get(&service, content_type).await.unwrap();
        assert_eq!(served.code(), Code::Ok, "{served:?}");
    }
    assert_eq!(bank.balance(), 2);
}

/// A client that breaks the gRPC protocol; the response may not be a gRPC one.
async fn call_by_get(service: &KeyLock<Bank>, content_type: &str) -> Result<Status, StatusCode> {
    // Not compressed, two bytes, and in them that the field 1 is 1.
    let message = Bytes::from_static(&[0, 0, 0, 0, 2, 0x08, 1]);
    let request = http::Request::get("/bank.Bank/Add")
        .header("content-type", content_type)
        .header("account", "joint")
        .body(Body::new(Full::new(message)));
    let answer = service.clone().oneshot(request.expect("a request"));
    let (head, body) = answer.answered().await.unwrap().into_parts();
    let body = body.collect().answered().await.expect("the answer ends");
    let status = Status::from_header_map(&head.headers);
    let in_trailers = || body.trailers().and_then(Status::from_header_map);
    status.or_else(in_trailers).ok_or(head.status)
}

#[tokio::test(start_paused = true)]
async fn a_call_does_not_wait_beyond_its_deadline() {
    let locker = Scene::new().locker_with(|locker| locker.wait(Duration::from_secs(600)));
    let held = locker.lock("joint").await.unwrap();
    let service = layer(&locker).layer(Bank::default());
    let mut hurried = call("joint");
    hurried.set_timeout(Duration::from_millis(100));
    let began = Instant::now();
    let refused = add(&service, hurried).answered().await.unwrap_err();
    let (soon, late) = (Duration::from_millis(100), Duration::from_millis(110));
    let after = began.elapsed();
    assert!(
        (soon..late).contains(&after),
        "a deadline of 100 ms ended the wait after {after:?}"
    );
    assert_eq!(refused.code(), Code::Aborted);
    let info = refused.get_details_error_info().unwrap();
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
    let locker = Scene::new().locker_with(LockerBuilder::try_only);
    let _held = locker.lock("joint").await.unwrap();
    let status = handler(&locker).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.get_details_retry_info().is_some());
}

/// The key comes from the metadata: the layer does not read messages.
///
/// tonic looks neither at the method nor at the content type: a `GET` that does not say that it is a
/// call is one, and would pass a layer that lets safe methods pass.
fn layer(locker: &Locker) -> KeyLockLayer {
    let by_account = |parts: &http::request::Parts| {
        let account = parts.headers.get("account").and_then(|v| v.to_str().ok());
        let account =
            account.ok_or_else(|| KeyError::Missing("the metadata name no account".to_owned()))?;
        Ok(Keys::one(account))
    };
    let layer = KeyLockLayer::new(locker.clone(), by_account);
    let layer = layer.with_safe_methods(SafeMethods::Exclusive);
    layer.expect("every backend has exclusive locks")
}

fn call(account: &'static str) -> Request<u64> {
    let mut request = Request::new(1);
    let account = account.parse().expect("ASCII");
    request.metadata_mut().insert("account", account);
    request
}

/// Calls the method of the bank, and returns the token of the lock.
#[expect(clippy::future_not_send, reason = "it is where its service is")]
async fn add<S>(service: &S, request: Request<u64>) -> Result<u64, Status>
where
    S: GrpcService<Body> + Clone,
    S::ResponseBody: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let mut client = Grpc::new(service.clone());
    assert!(client.ready().await.is_ok(), "the service is not ready");
    let path = PathAndQuery::from_static("/bank.Bank/Add");
    let answer = client.unary(request, path, ProstCodec::default());
    Ok(answer.await?.into_inner())
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A service as a generator would write it. Its one method adds to the balance of one account,
/// whatever the key, answers with the token of the lock, and fails if another call is inside.
#[derive(Clone, Debug, Default)]
struct Bank(Arc<Mutex<u64>>);

impl Bank {
    fn balance(&self) -> u64 {
        *self.0.try_lock().expect("no call is inside")
    }

    async fn add(self, request: Request<u64>) -> Result<Response<u64>, Status> {
        let held = request.extensions().get::<HeldLock>();
        let held = held.ok_or_else(|| Status::failed_precondition("there is no lock"))?;
        let balance = self.0.try_lock();
        let mut balance = balance.map_err(|_| Status::internal("two are inside"))?;
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        held.ensure_held()?;
        *balance += request.get_ref();
        let token = held.fencing_token().expect("memory has tokens");
        Ok(Response::new(token.value()))
    }
}

impl NamedService for Bank {
    const NAME: &'static str = "bank.Bank";
}

impl Service<http::Request<Body>> for Bank {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let bank = self.clone();
        Box::pin(async move {
            let method = tower::service_fn(move |request| bank.clone().add(request));
            let mut server = tonic::server::Grpc::new(ProstCodec::default());
            Ok(server.unary(method, request).await)
        })
    }
}
