//! A bank with two instances that speak gRPC: calls for the same account run one at a time,
//! whichever instance they reach.
//!
//! ```console
//! $ cargo run -p polylock-examples --example grpc
//! $ cargo run -p polylock-examples --example grpc -- --backend redis://localhost
//! ```
//!
//! The same transfers are made without the layer first. Exits with 0 if behind the layer no two
//! calls met on an account and no update was lost, without it some met, and a call that would not
//! wait was told when to come back.

mod bank;
mod proto;

use std::error::Error;
use std::fmt;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use clap::Parser;
use lock_tower::{KeyError, KeyLockLayer, Keys, Locker, LockerBuilder, SafeMethods};
use polylock::DistributedLock;
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;
use tower::Layer as _;

use crate::bank::{Bank, Ledger};
use crate::proto::{Balances, Proto, Transfer};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const ACCOUNTS: [&str; 3] = ["ann", "bob", "cid"];
const CENTS: u64 = 100_000;
const CLIENTS: usize = 6;
const TRANSFERS: usize = 30;

#[derive(Debug, Parser)]
struct Args {
    /// The lock service; a store in memory needs a name, so that both instances find it.
    #[arg(long, default_value = "memory:bank")]
    backend: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let report = run(&Args::parse().backend).await?;
    Ok(io::stdout().write_all(report.as_bytes())?)
}

/// Makes the transfers without the layer and behind it, and has one call refused.
async fn run(url: &str) -> Result<String> {
    let naked = transfers([None, None]).await?;
    // Each instance has a connection of its own, as if it were another process.
    let (here, there) = (polylock::connect(url).await?, polylock::connect(url).await?);
    let waits = |locker: LockerBuilder| locker.wait(Duration::from_secs(30));
    let [one, two] = [&here, &there].map(|locks| layer(locks, waits));
    let locked = transfers([Some(one?), Some(two?)]).await?;
    let refused = refused(&here, &there).await?;
    for locks in [here, there] {
        locks.shutdown(Duration::from_secs(5)).await;
    }
    let report = format!(
        "{} transfers by {CLIENTS} clients through 2 instances\n\
         without the layer: {naked}\n\
         behind the layer: {locked}\n\
         refused: {refused}\n",
        CLIENTS * TRANSFERS
    );
    match (naked.overlaps, locked.overlaps, locked.astray) {
        (1.., 0, 0) => Ok(report),
        _ => Err(report.into()),
    }
}

/// The layer around the service. The keys come from the metadata: a layer does not read messages.
fn layer(
    locks: &Arc<dyn DistributedLock>,
    set: impl Fn(LockerBuilder) -> LockerBuilder,
) -> Result<KeyLockLayer> {
    let accounts = set(Locker::builder(Arc::clone(locks), "accounts")).build()?;
    let layer = KeyLockLayer::new(accounts, both_accounts);
    // tonic looks neither at the method nor at the content type: a `GET` that does not say that it
    // is a call is one, and would pass the layer.
    Ok(layer.with_safe_methods(SafeMethods::Exclusive)?)
}

/// Two locks, taken in one order whichever way the money goes.
fn both_accounts(call: &Parts) -> Result<Keys, KeyError> {
    let account = |name| call.headers.get(name).and_then(|value| value.to_str().ok());
    match (account("from"), account("to")) {
        (Some(from), Some(to)) => Ok(Keys::many([from, to])),
        _ => Err(KeyError::Missing("`from` and `to` are missing".to_owned())),
    }
}

/// What the ledger says when all transfers are made.
struct Outcome {
    /// How often two calls were at work on one account.
    overlaps: u64,
    /// Cents that an account has too many or too few.
    astray: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} overlaps, {} cents astray",
            self.overlaps, self.astray
        )
    }
}

/// Has the clients make their transfers through two instances with one ledger.
async fn transfers(layers: [Option<KeyLockLayer>; 2]) -> Result<Outcome> {
    let ledger = Ledger::new(CENTS);
    let mut servers = JoinSet::new();
    let mut addresses = Vec::new();
    for layer in layers {
        addresses.push(serve(&mut servers, &ledger, layer)?);
    }
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let address = addresses[number % addresses.len()];
        clients.spawn(async move {
            let mut client = Client::connect(address).await?;
            for transfer in planned(number) {
                client.transfer(transfer).await?;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    let mut expected = [CENTS; ACCOUNTS.len()];
    for (from, to, cents) in (0..CLIENTS).flat_map(planned) {
        expected[from] -= cents;
        expected[to] += cents;
    }
    let differences = expected.iter().zip(ledger.balances());
    Ok(Outcome {
        overlaps: ledger.overlaps(),
        astray: differences.map(|(cents, now)| cents.abs_diff(now)).sum(),
    })
}

/// The transfers of one client: from, to, cents. Some send the other way round.
fn planned(client: usize) -> impl Iterator<Item = (usize, usize, u64)> {
    (0..TRANSFERS)
        .zip((1..=7).cycle())
        .map(move |(number, cents)| {
            let (from, to) = (number % ACCOUNTS.len(), (number + 1) % ACCOUNTS.len());
            match client % 4 < 2 {
                true => (from, to, cents),
                false => (to, from, cents),
            }
        })
}

/// Starts an instance on a free port.
fn serve(
    servers: &mut JoinSet<Result<(), tonic::transport::Error>>,
    ledger: &Arc<Ledger>,
    layer: Option<KeyLockLayer>,
) -> Result<SocketAddr> {
    let bank = Bank {
        ledger: Arc::clone(ledger),
    };
    let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = incoming.local_addr()?;
    let router = match layer {
        // It keeps the name of the service; `Server::builder().layer(..)` takes it for all services.
        Some(layer) => Server::builder().add_service(layer.layer(bank)),
        None => Server::builder().add_service(bank),
    };
    servers.spawn(router.serve_with_incoming(incoming));
    Ok(address)
}

/// Somebody here has the account; a call there does not want to wait for it.
async fn refused(
    here: &Arc<dyn DistributedLock>,
    there: &Arc<dyn DistributedLock>,
) -> Result<String> {
    let mut servers = JoinSet::new();
    let no_wait = layer(there, |locker| {
        locker.try_only().retry_after(Duration::from_millis(1500))
    })?;
    let ledger = Ledger::new(CENTS);
    let address = serve(&mut servers, &ledger, Some(no_wait))?;
    let held = layer(here, |locker| locker)?.locker().lock("ann").await?;
    let answer = Client::connect(address).await?.transfer((0, 1, 5)).await;
    held.release().await?;
    let status = answer.err().ok_or("two calls had one account")?;
    let details = status.get_error_details();
    let retry = details.retry_info().and_then(|retry| retry.retry_delay);
    match (status.code(), details.error_info(), retry) {
        (Code::Aborted, Some(info), Some(after)) if !after.is_zero() => {
            let (code, reason) = (Code::Aborted as i32, &info.reason);
            Ok(format!("{reason}, code {code}, again in {after:?}"))
        }
        _ => Err(status.into()),
    }
}

struct Client(tonic::client::Grpc<Channel>);

impl Client {
    async fn connect(address: SocketAddr) -> Result<Self> {
        let channel = Channel::from_shared(format!("http://{address}"))?;
        Ok(Self(tonic::client::Grpc::new(channel.connect().await?)))
    }

    async fn transfer(&mut self, transfer: (usize, usize, u64)) -> Result<Balances, Status> {
        let (from, to, cents) = transfer;
        let mut request = Request::new(Transfer { cents });
        for (name, account) in [("from", from), ("to", to)] {
            let account = ACCOUNTS[account].parse();
            let account = account.map_err(|_| Status::internal("an account is ASCII"))?;
            request.metadata_mut().insert(name, account);
        }
        let ready = self.0.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static("/bank.Bank/Transfer");
        Ok(self
            .0
            .unary(request, path, Proto::new())
            .await?
            .into_inner())
    }
}

#[cfg(test)]
mod tests {
    use lock_testkit::servers::{RedisOptions, RedisServer};

    use super::*;

    #[tokio::test]
    async fn no_update_is_lost_behind_the_layer() {
        let redis = RedisServer::start(RedisOptions::new());
        for url in ["memory:bank".to_owned(), redis.url()] {
            let report = run(&url).await.unwrap();
            assert!(
                report.contains("behind the layer: 0 overlaps, 0 cents astray"),
                "{report}"
            );
            assert!(
                !report.contains("without the layer: 0 overlaps"),
                "{report}"
            );
            let refused = "refused: LOCK_BUSY, code 10, again in 1.5s";
            assert!(report.contains(refused), "{report}");
        }
    }
}
