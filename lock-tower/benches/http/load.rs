//! A server on loopback, and clients that keep their connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::routes::REQUEST;

pub(crate) type Client = SendRequest<Body>;

/// Serves until the runtime ends.
pub(crate) async fn serve(app: Router) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    port
}

pub(crate) async fn clients(port: u16, number: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..number {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (client, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        clients.push(client);
    }
    clients
}

pub(crate) async fn send(client: &mut Client, key: &str) {
    let uri = format!("{REQUEST}{key}");
    let request = Request::post(uri).header("host", "bench");
    client.ready().await.unwrap();
    let response = client
        .send_request(request.body(Body::empty()).unwrap())
        .await;
    let response = response.unwrap();
    assert_eq!(response.status(), 200);
    response.into_body().collect().await.unwrap();
}

/// Requests a second that the clients get through in `time`, each one after the other.
pub(crate) async fn rate(clients: &mut Vec<Client>, keys: Keys, time: Duration) -> f64 {
    let done = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for (number, mut client) in clients.drain(..).enumerate() {
        let (done, over) = (Arc::clone(&done), Arc::clone(&over));
        tasks.spawn(async move {
            let mut turn = 0_u64;
            while !over.load(Ordering::Relaxed) {
                turn += 1;
                match keys {
                    Keys::Distinct => send(&mut client, &format!("{number}-{turn}")).await,
                    Keys::One => send(&mut client, "hot").await,
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            client
        });
    }
    tokio::time::sleep(time).await;
    let rate = done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    over.store(true, Ordering::Relaxed);
    clients.extend(tasks.join_all().await);
    rate
}

#[derive(Clone, Copy)]
pub(crate) enum Keys {
    Distinct,
    One,
}

/// The rates of several applications, in turns: `rounds` of `time` each, after one to warm up.
pub(crate) async fn rates(
    apps: Vec<Router>,
    connections: usize,
    keys: Keys,
    rounds: usize,
    time: Duration,
) -> Vec<Vec<f64>> {
    let mut contenders = Vec::new();
    for app in apps {
        let port = serve(app).await;
        contenders.push((clients(port, connections).await, Vec::new()));
    }
    for round in 0..=rounds {
        for (clients, rates) in &mut contenders {
            let rate = rate(clients, keys, time).await;
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    contenders.into_iter().map(|(_, rates)| rates).collect()
}
