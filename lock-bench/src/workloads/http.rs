//! Requests over HTTP/1.1, to a server of this process on the loopback interface.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use polylock::tower::{HeldLock, KeyLockLayer, Keys, Locker};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tower::{Layer as _, Service, service_fn};

use super::layer::{LayerCall, LayerResponse, client, serve};
use crate::measure::{RecordedSpans, SpanLog, Window};
use crate::subject::Failure;

/// Two servers, one of which has the layer. They end when they are dropped.
pub(super) struct HttpServers {
    plain: SocketAddr,
    locked: SocketAddr,
    _tasks: JoinSet<()>,
}

impl HttpServers {
    pub(super) async fn start(locker: Locker, hold: Duration) -> Result<Self, Failure> {
        let handler = service_fn(move |request: Request<Incoming>| handle(request, hold));
        let layer = KeyLockLayer::new(locker, |parts: &Parts| {
            Ok(Keys::one(parts.uri.path().trim_start_matches('/')))
        });
        let mut tasks = JoinSet::new();
        Ok(Self {
            plain: start(&mut tasks, handler).await?,
            locked: start(&mut tasks, layer.layer(handler)).await?,
            _tasks: tasks,
        })
    }

    /// Has one client send requests to both in turn, on a connection to each.
    pub(super) fn client(
        &self,
        number: u32,
        log: SpanLog,
        window: Window,
    ) -> impl Future<Output = Result<RecordedSpans, Failure>> + Send + use<> {
        let (plain, locked) = (self.plain, self.locked);
        async move {
            let (plain, locked) = (connect(plain).await?, connect(locked).await?);
            client(number, log, plain, locked, window).await
        }
    }
}

/// Serves connections to a port of its own.
async fn start<S, B>(tasks: &mut JoinSet<()>, service: S) -> Result<SocketAddr, Failure>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            connections.spawn(async move {
                let _is_unset = stream.set_nodelay(true);
                let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                let _ended_by_client = served.await;
            });
        }
    });
    Ok(address)
}

/// Answers with the token, or 0, and with the times at which the handler began and ended.
async fn handle(
    mut request: Request<Incoming>,
    hold: Duration,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let held = request.extensions_mut().remove::<HeldLock>();
    let name = Arc::default();
    let Ok(seen) = serve(LayerCall { name, held }, hold).await;
    let token = seen.token.unwrap_or_default();
    let text = format!("{token} {} {}", seen.began, seen.ended);
    Ok(Response::new(text.into()))
}

/// A client with a connection of its own.
async fn connect(
    address: SocketAddr,
) -> Result<
    impl Service<LayerCall, Response = LayerResponse, Error = Failure, Future: Send>
    + Clone
    + Send
    + Sync,
    Failure,
> {
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(connection);
    let sender = Arc::new(Mutex::new(sender));
    Ok(service_fn(move |call: LayerCall| {
        let sender = Arc::clone(&sender);
        async move { send(&mut *sender.lock().await, &call.name).await }
    }))
}

async fn send(
    sender: &mut SendRequest<Empty<Bytes>>,
    name: &str,
) -> Result<LayerResponse, Failure> {
    sender.ready().await.map_err(failed)?;
    let request = Request::post(format!("/{name}")).header("host", "lock-bench");
    let request = request.body(Empty::new()).map_err(failed)?;
    let response = sender.send_request(request).await.map_err(failed)?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(failed)?;
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let mut numbers = body.split(' ').map(u64::from_str);
    match (status, numbers.next(), numbers.next(), numbers.next()) {
        (StatusCode::OK, Some(Ok(token)), Some(Ok(began)), Some(Ok(ended))) => Ok(LayerResponse {
            token: (token > 0).then_some(token),
            began,
            ended,
        }),
        _ => Err(Failure::new("rejected", format!("{status}: {body}"))),
    }
}

fn failed(error: impl Error + 'static) -> Failure {
    Failure::of("http", &error)
}
