//! A proxy before one server of etcd that knows its transactions, so that a fault meets a chosen one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use polylock_core::memory::{Fault, Reachable, Request};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

type Body = BoxBody<Bytes, hyper::Error>;
type Answer = hyper::Response<Body>;
type Upstream = hyper::client::conn::http2::Connection<TokioIo<TcpStream>, Body, TokioExecutor>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A proxy of one server, on a thread of its own.
#[derive(Debug)]
pub(crate) struct GrpcProxy {
    port: u16,
    shared: Arc<Shared>,
    /// Its thread ends with this.
    _end: tokio::sync::oneshot::Sender<()>,
}

#[derive(Debug)]
struct Shared {
    plans: Plans,
    /// The calls that have come: their paths, and the kinds of transactions.
    seen: Mutex<Vec<(String, Option<Request>)>>,
    is_reachable: watch::Sender<bool>,
    /// The call to hold.
    next: Mutex<Option<Matches>>,
    /// Notifies held calls.
    pass: watch::Sender<()>,
    /// The calls that a full database refuses, and whether it is full.
    quota: Mutex<Option<(Matches, bool)>>,
    /// The calls that are refused, with the code of gRPC and the message.
    refused: Mutex<Option<(Matches, &'static str, &'static str)>>,
}

/// Whether a call is held, by its path and the kind of its transaction.
pub(crate) type Matches = fn(&str, Option<Request>) -> bool;

pub(crate) fn is_creation(_: &str, kind: Option<Request>) -> bool {
    kind == Some(Request::Acquire)
}

pub(crate) fn is_release(_: &str, kind: Option<Request>) -> bool {
    kind == Some(Request::Release)
}

pub(crate) fn is_renewal(_: &str, kind: Option<Request>) -> bool {
    kind == Some(Request::Renew)
}

/// Whether it writes a key that exists.
pub(crate) fn is_write(path: &str, kind: Option<Request>) -> bool {
    path.ends_with("/Txn") && kind.is_none()
}

pub(crate) fn is_grant(path: &str, _: Option<Request>) -> bool {
    path.ends_with("/LeaseGrant")
}

pub(crate) fn is_revocation(path: &str, _: Option<Request>) -> bool {
    path.ends_with("/LeaseRevoke")
}

pub(crate) fn is_keep_alive(path: &str, _: Option<Request>) -> bool {
    path.ends_with("/LeaseKeepAlive")
}

pub(crate) fn is_watch(path: &str, _: Option<Request>) -> bool {
    path.ends_with("/Watch")
}

pub(crate) fn is_read(path: &str, _: Option<Request>) -> bool {
    path.ends_with("/Range")
}

/// The plan, which the proxies of a cluster share.
pub(crate) type Plans = Arc<Mutex<VecDeque<(Request, Fault)>>>;

impl GrpcProxy {
    pub(crate) fn start(target: u16, plans: &Plans) -> Self {
        let shared = Arc::new(Shared {
            plans: Arc::clone(plans),
            seen: Mutex::default(),
            is_reachable: watch::channel(true).0,
            next: Mutex::default(),
            pass: watch::channel(()).0,
            quota: Mutex::default(),
            refused: Mutex::default(),
        });
        let (end, ended) = tokio::sync::oneshot::channel();
        let (started, port) = std::sync::mpsc::channel();
        let inner = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
                let port = listener.local_addr().expect("it listens").port();
                started.send(port).expect("the test listens");
                tokio::select! {
                    () = accept(listener, target, inner) => {}
                    _ = ended => {}
                }
            });
        });
        Self {
            port: port.recv().expect("it starts"),
            shared,
            _end: end,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many calls that match have come so far.
    pub(crate) fn seen(&self, matches: impl Fn(&str, Option<Request>) -> bool) -> usize {
        let seen = self.shared.seen.lock().expect("no panic");
        seen.iter()
            .filter(|(path, kind)| matches(path, *kind))
            .count()
    }

    /// The calls of two kinds that have come so far, in their order: whether each is of the first kind.
    pub(crate) fn order(&self, first: Matches, second: Matches) -> Vec<bool> {
        let seen = self.shared.seen.lock().expect("no panic");
        let kinds = seen.iter().filter_map(|(path, kind)| {
            let is_first = first(path, *kind);
            (is_first || second(path, *kind)).then_some(is_first)
        });
        kinds.collect()
    }

    /// Plans a fault for the next transaction of this kind.
    pub(crate) fn plan(&self, request: Request, fault: Fault) {
        let mut plans = self.shared.plans.lock().expect("no panic");
        plans.push_back((request, fault));
    }

    /// Holds the next call that matches and has no planned fault, until [`pass`](Self::pass): then it reaches
    /// the server, also if its client has given up.
    pub(crate) fn hold(&self, matches: Matches) {
        *self.shared.next.lock().expect("no panic") = Some(matches);
    }

    /// Lets the next call that matches reach the quota of the database: the server executes it, and the
    /// client is answered that the database is full. Later ones that match are refused.
    pub(crate) fn fill(&self, matches: Matches) {
        *self.shared.quota.lock().expect("no panic") = Some((matches, false));
    }

    /// Ends the effect of [`fill`](Self::fill).
    pub(crate) fn make_space(&self) {
        *self.shared.quota.lock().expect("no panic") = None;
    }

    /// Refuses transactions that match and have no planned fault, as those of a user without the right.
    pub(crate) fn deny(&self, matches: Matches) {
        self.refuse(matches, "7", "etcdserver: permission denied");
    }

    /// Refuses calls that match and have no planned fault, with a code of gRPC.
    pub(crate) fn refuse(&self, matches: Matches, code: &'static str, message: &'static str) {
        *self.shared.refused.lock().expect("no panic") = Some((matches, code, message));
    }

    /// Ends the effect of [`refuse`](Self::refuse).
    pub(crate) fn accept(&self) {
        *self.shared.refused.lock().expect("no panic") = None;
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.shared.pass.receiver_count() > 0
    }

    pub(crate) fn pass(&self) {
        self.shared.pass.send_replace(());
    }

    pub(crate) fn set_reachable(&self, reachable: Reachable) {
        let is_reachable = reachable == Reachable::Connected;
        self.shared.is_reachable.send_replace(is_reachable);
    }
}

async fn accept(listener: TcpListener, target: u16, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let mut reachable = shared.is_reachable.subscribe();
        if !*reachable.borrow_and_update() {
            continue;
        }
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            tokio::select! {
                served = serve(stream, target, shared) => drop(served),
                _ = reachable.changed() => {}
            }
        });
    }
}

async fn serve(stream: TcpStream, target: u16, shared: Arc<Shared>) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let (sender, connection) = connect(target).await?;
    let service =
        service_fn(move |request| pass(request, sender.clone(), target, Arc::clone(&shared)));
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = connection => Ok(ended?),
        ended = server => Ok(ended?),
    }
}

async fn connect(target: u16) -> Result<(SendRequest<Body>, Upstream), Failure> {
    let address = SocketAddr::from(([127, 0, 0, 1], target));
    let upstream = TcpStream::connect(address).await?;
    upstream.set_nodelay(true)?;
    let client = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .handshake(TokioIo::new(upstream));
    Ok(client.await?)
}

async fn pass(
    request: hyper::Request<Incoming>,
    mut sender: SendRequest<Body>,
    target: u16,
    shared: Arc<Shared>,
) -> Result<Answer, Failure> {
    let path = request.uri().path().to_owned();
    if path != "/etcdserverpb.KV/Txn" {
        shared.note(&path, None);
        if let Some(mut pass) = shared.held(&path, None) {
            drop(pass.changed().await);
        }
        if let Some((code, message)) = shared.refusal(&path, None) {
            // An answer before its end would break the request; that of a keep-alive does not end.
            if !is_keep_alive(&path, None) {
                request.into_body().collect().await?;
            }
            return refusal(code, message);
        }
        let Some(was_full) = shared.reaches_quota(&path, None) else {
            return send(&mut sender, request.map(BodyExt::boxed)).await;
        };
        if was_full {
            request.into_body().collect().await?;
        } else {
            let executed = send(&mut sender, request.map(BodyExt::boxed)).await?;
            executed.into_body().collect().await?;
        }
        return no_space();
    }
    let (head, body) = request.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let again = || hyper::Request::from_parts(head.clone(), whole(bytes.clone()));
    // Behind the flag and the length of a message.
    let kind = TxnRequest::decode(bytes.slice(5..))?.kind();
    shared.note(&path, kind);
    let fault = shared.fault(kind);
    if fault.is_none()
        && let Some((code, message)) = shared.refusal(&path, kind)
    {
        return refusal(code, message);
    }
    if fault.is_none()
        && let Some(mut pass) = shared.held(&path, kind)
    {
        let late = again();
        return tokio::spawn(async move {
            drop(pass.changed().await);
            let (mut sender, connection) = connect(target).await?;
            tokio::spawn(connection);
            send(&mut sender, late).await
        })
        .await?;
    }
    if let Some(was_full) = shared.reaches_quota(&path, kind) {
        if !was_full {
            let executed = send(&mut sender, again()).await?;
            executed.into_body().collect().await?;
        }
        return no_space();
    }
    match fault {
        None => send(&mut sender, again()).await,
        Some(Fault::Duplicated) => {
            let first = send(&mut sender, again()).await?;
            first.into_body().collect().await?;
            send(&mut sender, again()).await
        }
        Some(Fault::LateReply(delay)) => {
            let answer = send(&mut sender, again()).await?;
            tokio::time::sleep(delay).await;
            Ok(answer)
        }
        Some(Fault::LostReply) => {
            let lost = send(&mut sender, again()).await?;
            lost.into_body().collect().await?;
            Err("the reply is lost".into())
        }
        Some(Fault::LostRequest) => Err("the request is lost".into()),
        Some(_) => std::future::pending().await,
    }
}

/// A body that is known as a whole.
fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// The answer of a server whose database is full.
fn no_space() -> Result<Answer, Failure> {
    refusal("8", "etcdserver: mvcc: database space exceeded")
}

/// A refusal with a code of gRPC.
fn refusal(code: &str, message: &str) -> Result<Answer, Failure> {
    let answer = hyper::Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", code)
        .header("grpc-message", message);
    Ok(answer.body(whole(Bytes::new()))?)
}

async fn send(
    sender: &mut SendRequest<Body>,
    request: hyper::Request<Body>,
) -> Result<Answer, Failure> {
    Ok(sender.send_request(request).await?.map(BodyExt::boxed))
}

impl Shared {
    /// The signal that lets a held call go on.
    fn held(&self, path: &str, kind: Option<Request>) -> Option<watch::Receiver<()>> {
        let mut next = self.next.lock().expect("no panic");
        let held = next.take_if(|matches| matches(path, kind));
        held.map(|_| self.pass.subscribe())
    }

    fn note(&self, path: &str, kind: Option<Request>) {
        let mut seen = self.seen.lock().expect("no panic");
        seen.push((path.to_owned(), kind));
    }

    /// `None` if the call does not match; else whether one before it has reached the quota.
    fn reaches_quota(&self, path: &str, kind: Option<Request>) -> Option<bool> {
        let mut quota = self.quota.lock().expect("no panic");
        let (matches, is_full) = quota.as_mut()?;
        matches(path, kind).then(|| std::mem::replace(is_full, true))
    }

    /// The code and the message of a call that is refused.
    fn refusal(&self, path: &str, kind: Option<Request>) -> Option<(&'static str, &'static str)> {
        let refused = self.refused.lock().expect("no panic");
        let (matches, code, message) = (*refused)?;
        matches(path, kind).then_some((code, message))
    }

    /// The fate of a request.
    fn fault(&self, request: Option<Request>) -> Option<Fault> {
        let request = request?;
        let mut plans = self.plans.lock().expect("no panic");
        let at = plans.iter().position(|(planned, _)| *planned == request)?;
        plans.remove(at).map(|(_, fault)| fault)
    }
}

/// The part of a transaction that says which request it is.
#[derive(Message)]
struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Operation>,
}

#[derive(Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
}

#[derive(Message)]
struct Operation {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
    #[prost(message, optional, tag = "3")]
    delete: Option<Delete>,
}

#[derive(Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Message)]
struct Delete {}

/// `CREATE` of the targets of a comparison.
const CREATION: i32 = 1;

impl TxnRequest {
    fn kind(&self) -> Option<Request> {
        if self.compare.is_empty() {
            // The read after a keep-alive.
            return Some(Request::Renew);
        }
        let mut operations = self.success.iter();
        if operations
            .clone()
            .any(|operation| operation.delete.is_some())
        {
            return Some(Request::Release);
        }
        let put = operations.find_map(|operation| operation.put.as_ref())?;
        let value = String::from_utf8_lossy(&put.value);
        let key = String::from_utf8_lossy(&put.key);
        if key.contains("/=") {
            Some(Request::Record)
        } else if self.compare[0].target == CREATION {
            Some(Request::Acquire)
        } else {
            let is_adopted = !value.contains("&adoptions=0&");
            is_adopted.then_some(Request::Adopt)
        }
    }
}
