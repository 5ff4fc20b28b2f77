//! A service as a generator would write it, and its client.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http::uri::PathAndQuery;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lock_tower::{HeldLock, KeyError, KeyExtractor, Keys};
use tokio::net::TcpStream;
use tokio::sync::{Barrier, Notify};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Channel;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Service;

use crate::support::InTime as _;

/// Its one method adds to the balance of one account, whatever the key, and answers with the token
/// of the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bank(Arc<State>);

#[derive(Debug, Default)]
struct State {
    balance: AtomicU64,
    inside: AtomicUsize,
    overlaps: AtomicUsize,
    pause: Pause,
}

/// What a call does between reading and writing.
#[derive(Debug, Default)]
pub(crate) enum Pause {
    /// Waits until as many calls are there.
    Meet(Barrier),
    /// Says that it is there, and stays until it is told to go on.
    Stay { entered: Notify, go_on: Notify },
    /// Lets the other tasks run.
    #[default]
    Yield,
}

impl Bank {
    pub(crate) fn pausing(pause: Pause) -> Self {
        let state = State {
            pause,
            ..State::default()
        };
        Self(Arc::new(state))
    }

    pub(crate) fn staying() -> Self {
        let (entered, go_on) = (Notify::new(), Notify::new());
        Self::pausing(Pause::Stay { entered, go_on })
    }

    pub(crate) async fn entered(&self) {
        if let Pause::Stay { entered, .. } = &self.0.pause {
            entered.notified().in_time("a call that is inside").await;
        }
    }

    pub(crate) fn go_on(&self) {
        if let Pause::Stay { go_on, .. } = &self.0.pause {
            go_on.notify_one();
        }
    }

    pub(crate) fn balance(&self) -> u64 {
        self.0.balance.load(Ordering::SeqCst)
    }

    /// How often a call found another one inside.
    pub(crate) fn overlaps(&self) -> usize {
        self.0.overlaps.load(Ordering::SeqCst)
    }

    async fn add(self, request: Request<u64>) -> Result<Response<u64>, Status> {
        let held = request.extensions().get::<HeldLock>();
        let held = held.ok_or_else(|| Status::failed_precondition("there is no lock"))?;
        let state = &*self.0;
        if state.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            state.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        let balance = state.balance.load(Ordering::SeqCst);
        match &state.pause {
            Pause::Meet(barrier) => {
                barrier.wait().await;
            }
            Pause::Stay { entered, go_on } => {
                entered.notify_one();
                go_on.notified().await;
            }
            Pause::Yield => {
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            }
        }
        held.ensure_held()?;
        let balance = balance + request.get_ref();
        state.balance.store(balance, Ordering::SeqCst);
        state.inside.fetch_sub(1, Ordering::SeqCst);
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

/// The key comes from the metadata: the layer does not read messages.
pub(crate) fn by_account() -> impl KeyExtractor {
    |parts: &http::request::Parts| {
        let account = parts.headers.get("account").and_then(|v| v.to_str().ok());
        let account =
            account.ok_or_else(|| KeyError::Missing("the metadata name no account".to_owned()))?;
        Ok(Keys::one(account))
    }
}

pub(crate) fn call(account: &'static str) -> Request<u64> {
    let mut request = Request::new(1);
    let account = account.parse().expect("ASCII");
    request.metadata_mut().insert("account", account);
    request
}

#[derive(Clone)]
pub(crate) struct Client(tonic::client::Grpc<Channel>);

impl Client {
    pub(crate) async fn add(&mut self, request: Request<u64>) -> Result<u64, Status> {
        let ready = self.0.ready().await;
        ready.map_err(|e| Status::unknown(e.to_string()))?;
        let path = PathAndQuery::from_static("/bank.Bank/Add");
        let answer = self
            .0
            .unary(request, path, ProstCodec::default())
            .answered()
            .await?;
        Ok(answer.into_inner())
    }
}

/// A server on a port of its own, ended when it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    _task: JoinSet<()>,
}

impl Server {
    pub(crate) fn start<F>(serve: impl FnOnce(TcpIncoming) -> F) -> Self
    where
        F: Future<Output = Result<(), tonic::transport::Error>> + Send + 'static,
    {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let incoming = TcpIncoming::bind(any_port).expect("a free port");
        let address = incoming.local_addr().expect("it is bound");
        let serving = serve(incoming);
        let mut task = JoinSet::new();
        task.spawn(async move { serving.await.expect("the server runs") });
        let _task = task;
        Self { address, _task }
    }

    /// A client with a connection of its own.
    pub(crate) async fn client(&self) -> Client {
        let endpoint = Channel::from_shared(format!("http://{}", self.address));
        let channel = endpoint.expect("a URL").connect().await;
        Client(tonic::client::Grpc::new(channel.expect("it listens")))
    }

    /// What a client gets that does not keep to gRPC: a call that adds 1, by `GET`. The answer may
    /// not be one of gRPC.
    pub(crate) async fn call_by_get(
        &self,
        account: &str,
        content_type: &str,
    ) -> Result<Status, StatusCode> {
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        let connected = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut client, connection) = connected.expect("it speaks HTTP/2");
        let mut connections = JoinSet::new();
        connections.spawn(connection);
        // Not compressed, two bytes, and in them that the field 1 is 1.
        let message = Bytes::from_static(&[0, 0, 0, 0, 2, 0x08, 1]);
        let request = http::Request::get(format!("http://{}/bank.Bank/Add", self.address))
            .header("content-type", content_type)
            .header("te", "trailers")
            .header("account", account)
            .body(Full::new(message));
        let answer = client.send_request(request.expect("a request")).answered();
        let (head, body) = answer.await.expect("it is answered").into_parts();
        let body = body.collect().answered().await.expect("the answer ends");
        let status = Status::from_header_map(&head.headers);
        let in_trailers = || body.trailers().and_then(Status::from_header_map);
        status.or_else(in_trailers).ok_or(head.status)
    }
}
