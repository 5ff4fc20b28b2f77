use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::app::REQUEST_ID;
use crate::support::InTime as _;

/// One connection, kept alive; opened again when the server has closed it.
#[derive(Debug)]
pub(crate) struct Client {
    server: SocketAddr,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

/// What the server said to a request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) id: String,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) took: Duration,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            connection: None,
        }
    }

    /// Sends `POST path`, once: a request that a broken connection leaves open is an error.
    pub(crate) async fn post(&mut self, path: &str, id: &str) -> hyper::Result<Reply> {
        let began = Instant::now();
        let sent = self.send(path, id).in_time("the head of the answer");
        let (head, body) = sent.await?.into_parts();
        let body = body.collect().in_time("the end of the body").await?;
        let body = body.to_bytes();
        Ok(Reply {
            id: id.to_owned(),
            status: head.status,
            headers: head.headers,
            body,
            took: began.elapsed(),
        })
    }

    /// Sends `POST path`, and leaves the body of the response to the caller.
    pub(crate) async fn open(&mut self, path: &str) -> Incoming {
        let sent = self
            .send(path, "streamed")
            .in_time("the head of the answer");
        let response = sent.await.expect("it is answered");
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    }

    async fn send(&mut self, path: &str, id: &str) -> hyper::Result<Response<Incoming>> {
        let request = Request::post(path)
            .header("host", "localhost")
            .header(REQUEST_ID, id)
            .body(Empty::new())
            .expect("a request");
        let sent = self.connection().await?.send_request(request).await;
        if sent.is_err() {
            self.connection = None;
        }
        sent
    }

    async fn connection(&mut self) -> hyper::Result<&mut SendRequest<Empty<Bytes>>> {
        if self.connection.as_mut().is_none_or(|open| open.is_closed()) {
            let stream = TcpStream::connect(self.server).await;
            let stream = stream.expect("the server listens");
            stream.set_nodelay(true).expect("it is open");
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            self.connection = Some(sender);
        }
        let open = self.connection.as_mut().expect("BUG: it was opened above");
        open.ready().await?;
        Ok(open)
    }
}

/// Sends `requests` requests over `connections` connections, which the servers share equally, and
/// returns the replies; every request has to have one.
pub(crate) async fn load(
    servers: &[SocketAddr],
    connections: usize,
    requests: usize,
    path: impl Fn(usize) -> String + Clone + Send + 'static,
) -> Vec<Reply> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut senders = JoinSet::new();
    for server in servers.iter().cycle().take(connections) {
        let (mut client, next, path) = (Client::new(*server), Arc::clone(&next), path.clone());
        senders.spawn(async move {
            let mut replies = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    break replies;
                }
                let reply = client.post(&path(number), &number.to_string()).await;
                replies.push(reply.expect("every request is answered"));
            }
        });
    }
    senders.join_all().await.into_iter().flatten().collect()
}
