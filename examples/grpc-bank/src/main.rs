//! A bank with two instances that speak gRPC: deposits to one account run one at a time, whichever
//! instance they reach.
//!
//! ```console
//! $ cargo run -p grpc-bank
//! $ cargo run -p grpc-bank --features polylock/redis -- redis://localhost
//! ```
//!
//! The same deposits are made without the layer first: then calls overlap and updates are lost. A
//! call that does not wait is refused with a status that says when to try again.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use http::uri::PathAndQuery;
use polylock::tower::keys::Header;
use polylock::tower::{KeyLockLayer, Locker, LockerBuilder, SafeMethods};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{self, Channel, Server};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;
use tower::{Layer as _, Service, service_fn};

const ACCOUNTS: u64 = 3;
const DEPOSITS: u64 = 180;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    // A store in memory has a name, so that both instances find it.
    run(url.as_deref().unwrap_or("memory:grpc-bank")).await
}

async fn run(url: &str) -> Result<()> {
    let lost = deposits("without the layer", [None, None]).await?;
    ensure!(lost > 0, "no update was lost without the layer");
    let wait = Duration::from_secs(30);
    let here = layer(locker(url).await?.wait(wait))?;
    let there = layer(locker(url).await?.wait(wait))?;
    let lost = deposits("behind the layer", [Some(here), Some(there)]).await?;
    ensure!(lost == 0, "updates were lost behind the layer");
    refused(url).await
}

/// Each instance has a connection of its own, as if it were another process.
async fn locker(url: &str) -> Result<LockerBuilder> {
    Ok(Locker::builder(polylock::connect(url).await?, "accounts"))
}

/// The layer around the service. The key comes from the metadata, because a layer does not read messages.
fn layer(locker: LockerBuilder) -> Result<KeyLockLayer> {
    let layer = KeyLockLayer::new(locker.build()?, Header::new("account")?);
    // tonic accepts a call by `GET` too, and by default one would pass the layer without a lock.
    Ok(layer.with_safe_methods(SafeMethods::Exclusive)?)
}

/// Makes all deposits of one cent at once, through two instances with one database. Returns how many were
/// lost.
async fn deposits(name: &str, layers: [Option<KeyLockLayer>; 2]) -> Result<u64> {
    let (bank, mut servers, mut instances) = (Bank::default(), JoinSet::new(), Vec::new());
    for layer in layers {
        instances.push(serve(&mut servers, bank.clone(), layer).await?);
    }
    let calls = (0..DEPOSITS).zip(instances.iter().cycle());
    try_join_all(calls.map(|(n, instance)| deposit(instance, n % ACCOUNTS))).await?;
    let lost = DEPOSITS - bank.sum();
    println!("{name}: {lost} of {DEPOSITS} deposits lost");
    Ok(lost)
}

/// One instance holds the lock of an account; a call to the other one does not wait for it.
async fn refused(url: &str) -> Result<()> {
    let mut servers = JoinSet::new();
    let no_wait = layer(locker(url).await?.try_only())?;
    let instance = serve(&mut servers, Bank::default(), Some(no_wait)).await?;
    let guard = locker(url).await?.build()?.lock("0").await?;
    let answer = deposit(&instance, 0).await;
    guard.release().await?;
    let error = answer.err().context("two calls had one account")?;
    let status: Status = error.downcast()?;
    let details = status.get_error_details();
    let retry_after = details.retry_info().and_then(|retry| retry.retry_delay);
    let code = status.code();
    println!("refused: {code:?}, retry after {retry_after:?}");
    ensure!(code == Code::Aborted && retry_after.is_some(), "{status}");
    Ok(())
}

/// Starts an instance on a free port, and connects to it.
async fn serve(
    servers: &mut JoinSet<Result<(), transport::Error>>,
    bank: Bank,
    layer: Option<KeyLockLayer>,
) -> Result<Channel> {
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let uri = format!("http://{}", incoming.local_addr()?);
    let router = match layer {
        // Around one service; `Server::builder().layer(..)` puts it around all of them.
        Some(layer) => Server::builder().add_service(layer.layer(bank)),
        None => Server::builder().add_service(bank),
    };
    servers.spawn(router.serve_with_incoming(incoming));
    Ok(Channel::from_shared(uri)?.connect().await?)
}

async fn deposit(instance: &Channel, account: u64) -> Result<()> {
    let mut client = tonic::client::Grpc::new(instance.clone());
    client.ready().await?;
    let mut request = Request::new(1_u64);
    request.metadata_mut().insert("account", account.into());
    let path = PathAndQuery::from_static("/bank.Bank/Deposit");
    let codec = ProstCodec::<u64, u64>::default();
    client.unary(request, path, codec).await?;
    Ok(())
}

/// The service on all instances, with the balances in cents that their database has. It checks nothing:
/// that is left to the lock. With a `.proto` file, most of what follows is generated.
#[derive(Clone, Default)]
struct Bank(Arc<[AtomicU64; ACCOUNTS as usize]>);

impl Bank {
    fn sum(&self) -> u64 {
        self.0.iter().map(|balance| balance.load(Relaxed)).sum()
    }

    /// Reads a balance and writes it, in two steps.
    async fn deposit(self, request: Request<u64>) -> Result<Response<u64>, Status> {
        let account = request.metadata().get("account");
        let account = account.and_then(|account| account.to_str().ok()?.parse().ok());
        let balance = account.and_then(|account: usize| self.0.get(account));
        let balance = balance.ok_or_else(|| Status::not_found("no such account"))?;
        let after = balance.load(Relaxed) + request.get_ref();
        // The time a database takes to answer; without a lock another call comes in between.
        tokio::time::sleep(Duration::from_millis(1)).await;
        balance.store(after, Relaxed);
        Ok(Response::new(after))
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
            let method = service_fn(move |request| bank.clone().deposit(request));
            let mut server = tonic::server::Grpc::new(ProstCodec::default());
            Ok(server.unary(method, request).await)
        })
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn no_update_is_lost_behind_the_layer() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
