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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::uri::PathAndQuery;
use polylock::DistributedLock;
use polylock::tower::keys::Header;
use polylock::tower::{KeyLockLayer, Locker, LockerBuilder, SafeMethods};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Error as TransportError, Server};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;
use tower::{Layer as _, Service, service_fn};

const ACCOUNTS: [&str; 3] = ["ann", "bob", "cid"];
const CLIENTS: usize = 6;
const DEPOSITS: usize = 30;

type Locks = Arc<dyn DistributedLock>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    // A store in memory has a name, so that both instances find it.
    run(url.as_deref().unwrap_or("memory:grpc-bank")).await
}

async fn run(url: &str) -> Result<()> {
    let lost = deposits("without the layer", [None, None]).await?;
    ensure!(lost > 0, "no update was lost without the layer");
    // Each instance has a connection of its own, as if it were another process.
    let (here, there) = (polylock::connect(url).await?, polylock::connect(url).await?);
    let waits = |locker: LockerBuilder| locker.wait(Duration::from_secs(30));
    let layers = [Some(layer(&here, waits)?), Some(layer(&there, waits)?)];
    let lost = deposits("behind the layer", layers).await?;
    ensure!(lost == 0, "updates were lost behind the layer");
    refused(&here, &there).await
}

/// The layer around the service. The key comes from the metadata, because a layer does not read messages.
fn layer(locks: &Locks, set: impl Fn(LockerBuilder) -> LockerBuilder) -> Result<KeyLockLayer> {
    let accounts = set(Locker::builder(Arc::clone(locks), "accounts")).build()?;
    let layer = KeyLockLayer::new(accounts, Header::new("account")?);
    // tonic takes a `GET` for a call too, and by default one would pass the layer without a lock.
    Ok(layer.with_safe_methods(SafeMethods::Exclusive)?)
}

/// Lets the clients make their deposits of one cent through two instances with one database. Returns how
/// many were lost.
async fn deposits(name: &str, layers: [Option<KeyLockLayer>; 2]) -> Result<u64> {
    let (bank, mut servers, mut clients) = (Bank::default(), JoinSet::new(), JoinSet::new());
    let [one, other] = layers.map(|layer| serve(&mut servers, bank.clone(), layer));
    let addresses = [one?, other?];
    for client in 0..CLIENTS {
        let address = addresses[client % 2];
        clients.spawn(async move {
            let mut connection = connect(address).await?;
            for n in 0..DEPOSITS {
                deposit(&mut connection, ACCOUNTS[n % ACCOUNTS.len()]).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    let made = (CLIENTS * DEPOSITS) as u64;
    let lost = made - bank.balances().iter().sum::<u64>();
    println!("{name:<18} {lost} of {made} deposits lost");
    Ok(lost)
}

/// Starts an instance on a free port.
fn serve(
    servers: &mut JoinSet<Result<(), TransportError>>,
    bank: Bank,
    layer: Option<KeyLockLayer>,
) -> Result<SocketAddr> {
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = incoming.local_addr()?;
    let router = match layer {
        // Around one service; `Server::builder().layer(..)` puts it around all of them.
        Some(layer) => Server::builder().add_service(layer.layer(bank)),
        None => Server::builder().add_service(bank),
    };
    servers.spawn(router.serve_with_incoming(incoming));
    Ok(address)
}

/// The lock of an account is held here; a call there does not wait for it.
async fn refused(here: &Locks, there: &Locks) -> Result<()> {
    let mut servers = JoinSet::new();
    let retry_after = Duration::from_millis(1500);
    let no_wait = layer(there, |locker| locker.try_only().retry_after(retry_after))?;
    let address = serve(&mut servers, Bank::default(), Some(no_wait))?;
    let guard = layer(here, |locker| locker)?.locker().lock("ann").await?;
    let answer = deposit(&mut connect(address).await?, "ann").await;
    guard.release().await?;
    let status = answer.err().context("two calls had one account")?;
    let details = status.get_error_details();
    let reason = details.error_info().map(|info| &*info.reason);
    let after = details.retry_info().and_then(|retry| retry.retry_delay);
    let (code, reason) = (status.code(), reason.context("no error info")?);
    println!("refused            {code:?}, {reason}, retry after {after:?}");
    let is_expected = (code, after) == (Code::Aborted, Some(retry_after));
    ensure!(is_expected, "{status}");
    Ok(())
}

type Client = tonic::client::Grpc<Channel>;

async fn connect(address: SocketAddr) -> Result<Client> {
    let endpoint = Channel::from_shared(format!("http://{address}"))?;
    Ok(Client::new(endpoint.connect().await?))
}

async fn deposit(client: &mut Client, account: &'static str) -> Result<u64, Status> {
    let mut request = Request::new(1_u64);
    let account = MetadataValue::from_static(account);
    request.metadata_mut().insert("account", account);
    let ready = client.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/bank.Bank/Deposit");
    let answer = client.unary(request, path, ProstCodec::default());
    Ok(answer.await?.into_inner())
}

/// The service on all instances, with the balances in cents that their database has. It checks nothing:
/// that is left to the lock. With a `.proto` file, most of what follows is generated.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<[u64; ACCOUNTS.len()]>>);

impl Bank {
    /// Reads a balance and writes it, in two steps.
    async fn deposit(self, request: Request<u64>) -> Result<Response<u64>, Status> {
        let named = request.metadata().get("account");
        let named = named.and_then(|value| value.to_str().ok());
        let account = ACCOUNTS.iter().position(|account| Some(*account) == named);
        let account = account.ok_or_else(|| Status::not_found("the account does not exist"))?;
        let after = self.balances()[account] + request.get_ref();
        // The time a database takes to answer; without a lock another call comes in between.
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.balances()[account] = after;
        Ok(Response::new(after))
    }

    fn balances(&self) -> MutexGuard<'_, [u64; ACCOUNTS.len()]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
