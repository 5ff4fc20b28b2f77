//! A bank with two instances that speak gRPC: calls for one account run one at a time, whichever
//! instance they reach.
//!
//! ```console
//! $ cargo run -p grpc-bank
//! $ cargo run -p grpc-bank --features polylock/redis -- redis://localhost
//! ```
//!
//! The same transfers are made without the layer first: then calls overlap and updates are lost. A
//! call that does not wait is refused with a status that says when to try again.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

mod service;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::request::Parts;
use http::uri::PathAndQuery;
use polylock::DistributedLock;
use polylock::tower::{KeyError, KeyLockLayer, Keys, Locker, LockerBuilder, SafeMethods};
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;
use tower::Layer as _;

use crate::service::{ACCOUNTS, Balances, Bank, Ledger, Transfer};

const CLIENTS: usize = 6;
const CENTS: u64 = 100_000;
const TRANSFERS: usize = 30;

type Locks = Arc<dyn DistributedLock>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    // A store in memory has a name, so that both instances find it.
    run(url.as_deref().unwrap_or("memory:grpc-bank")).await
}

async fn run(url: &str) -> Result<()> {
    let lost = transfers("without the layer", [None, None]).await?;
    ensure!(lost > 0, "no update was lost without the layer");
    // Each instance has a connection of its own, as if it were another process.
    let (here, there) = (polylock::connect(url).await?, polylock::connect(url).await?);
    let waits = |locker: LockerBuilder| locker.wait(Duration::from_secs(30));
    let layers = [Some(layer(&here, waits)?), Some(layer(&there, waits)?)];
    let lost = transfers("behind the layer", layers).await?;
    ensure!(lost == 0, "updates were lost behind the layer");
    refused(&here, &there).await
}

/// The layer around the service.
fn layer(locks: &Locks, set: impl Fn(LockerBuilder) -> LockerBuilder) -> Result<KeyLockLayer> {
    let accounts = set(Locker::builder(Arc::clone(locks), "accounts")).build()?;
    let layer = KeyLockLayer::new(accounts, both_accounts);
    // tonic takes a `GET` for a call too, and by default one would pass the layer without a lock.
    Ok(layer.with_safe_methods(SafeMethods::Exclusive)?)
}

/// The keys come from the metadata, because a layer does not read messages. Both locks are acquired
/// in one order, whichever way the money goes.
fn both_accounts(call: &Parts) -> Result<Keys, KeyError> {
    let account = |name| call.headers.get(name).and_then(|value| value.to_str().ok());
    match (account("from"), account("to")) {
        (Some(from), Some(to)) => Ok(Keys::many([from, to])),
        _ => Err(KeyError::Missing("`from` and `to` are missing".to_owned())),
    }
}

/// Lets the clients make their transfers through two instances with one ledger. Returns by how many
/// cents accounts are wrong.
async fn transfers(name: &str, layers: [Option<KeyLockLayer>; 2]) -> Result<u64> {
    let ledger = Arc::new(Ledger::new([CENTS; ACCOUNTS.len()]));
    let (mut servers, mut clients) = (JoinSet::new(), JoinSet::new());
    let [one, other] = layers.map(|layer| serve(&mut servers, &ledger, layer));
    let addresses = [one?, other?];
    let mut expected = [CENTS; ACCOUNTS.len()];
    for client in 0..CLIENTS {
        for (from, to, cents) in planned(client) {
            expected[from] -= cents;
            expected[to] += cents;
        }
        let address = addresses[client % 2];
        clients.spawn(async move {
            let mut connection = connect(address).await?;
            for (from, to, cents) in planned(client) {
                transfer(&mut connection, from, to, cents).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    let balances = *ledger.lock().unwrap_or_else(PoisonError::into_inner);
    let differences = expected.iter().zip(balances);
    let lost = differences.map(|(cents, now)| cents.abs_diff(now)).sum();
    println!("{name:<18} balances wrong by {lost} cents");
    Ok(lost)
}

/// From, to and cents of the transfers of one client; some send the other way round.
fn planned(client: usize) -> impl Iterator<Item = (usize, usize, u64)> {
    (0..TRANSFERS)
        .zip((1..=7).cycle())
        .map(move |(number, cents)| {
            let (from, to) = (number % ACCOUNTS.len(), (number + 1) % ACCOUNTS.len());
            if client % 4 < 2 {
                (from, to, cents)
            } else {
                (to, from, cents)
            }
        })
}

/// Starts an instance on a free port.
fn serve(
    servers: &mut JoinSet<Result<(), tonic::transport::Error>>,
    ledger: &Arc<Ledger>,
    layer: Option<KeyLockLayer>,
) -> Result<SocketAddr> {
    let bank = Bank(Arc::clone(ledger));
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
    let address = serve(&mut servers, &Arc::default(), Some(no_wait))?;
    let guard = layer(here, |locker| locker)?.locker().lock("ann").await?;
    let answer = transfer(&mut connect(address).await?, 0, 1, 5).await;
    guard.release().await?;
    let status = answer.err().context("two calls had one account")?;
    let details = status.get_error_details();
    let reason = details.error_info().map(|info| &*info.reason);
    let after = details.retry_info().and_then(|retry| retry.retry_delay);
    let (code, reason) = (status.code(), reason.context("no error info")?);
    println!("refused            {code:?}, {reason}, retry after {after:?}");
    ensure!(
        (code, after) == (Code::Aborted, Some(retry_after)),
        "{status}"
    );
    Ok(())
}

type Client = tonic::client::Grpc<Channel>;

async fn connect(address: SocketAddr) -> Result<Client> {
    let channel = Channel::from_shared(format!("http://{address}"))?
        .connect()
        .await?;
    Ok(Client::new(channel))
}

async fn transfer(
    client: &mut Client,
    from: usize,
    to: usize,
    cents: u64,
) -> Result<Balances, Status> {
    let mut request = Request::new(Transfer { cents });
    for (name, account) in [("from", from), ("to", to)] {
        let value = tonic::metadata::MetadataValue::from_static(ACCOUNTS[account]);
        request.metadata_mut().insert(name, value);
    }
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/bank.Bank/Transfer");
    Ok(client
        .unary(request, path, ProstCodec::default())
        .await?
        .into_inner())
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn no_update_is_lost_behind_the_layer() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
