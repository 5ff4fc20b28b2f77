//! The service: it reads two balances and writes them, in two steps. With a `.proto` file, most of
//! this is generated.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use prost::Message;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

pub(crate) const ACCOUNTS: [&str; 3] = ["ann", "bob", "cid"];
pub(crate) const CENTS: u64 = 100_000;

/// Moves money; the accounts are in the metadata.
#[derive(Clone, Copy, Message)]
pub(crate) struct Transfer {
    #[prost(uint64, tag = "1")]
    pub(crate) cents: u64,
}

#[derive(Clone, Copy, Message)]
pub(crate) struct Balances {
    #[prost(uint64, tag = "1")]
    pub(crate) from: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) to: u64,
}

/// The database of all instances. It checks nothing: that is left to the lock.
#[derive(Debug)]
pub(crate) struct Ledger {
    cents: Mutex<[u64; ACCOUNTS.len()]>,
    /// Calls that are at work on each account, and how often one found another there.
    at_work: [AtomicU64; ACCOUNTS.len()],
    overlaps: AtomicU64,
}

impl Default for Ledger {
    fn default() -> Self {
        let cents = Mutex::new([CENTS; ACCOUNTS.len()]);
        Self {
            cents,
            at_work: Default::default(),
            overlaps: AtomicU64::new(0),
        }
    }
}

impl Ledger {
    pub(crate) fn balances(&self) -> [u64; ACCOUNTS.len()] {
        *self.cents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn overlaps(&self) -> u64 {
        self.overlaps.load(SeqCst)
    }

    fn write(&self, account: usize, cents: u64) {
        self.cents.lock().unwrap_or_else(PoisonError::into_inner)[account] = cents;
    }
}

/// Serves `bank.Bank/Transfer`.
#[derive(Clone, Debug)]
pub(crate) struct Bank(pub(crate) Arc<Ledger>);

impl Bank {
    async fn transfer(self, request: Request<Transfer>) -> Result<Response<Balances>, Status> {
        let [from, to] = ["from", "to"].map(|name| account(&request, name));
        let (from, to, ledger) = (from?, to?, self.0);
        for account in [from, to] {
            let others = ledger.at_work[account].fetch_add(1, SeqCst);
            ledger.overlaps.fetch_add(u64::from(others > 0), SeqCst);
        }
        let (before, cents) = (ledger.balances(), request.get_ref().cents);
        // The time a database takes to answer; without a lock another call comes in between.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let after = Balances {
            from: before[from] - cents,
            to: before[to] + cents,
        };
        ledger.write(from, after.from);
        ledger.write(to, after.to);
        for account in [from, to] {
            ledger.at_work[account].fetch_sub(1, SeqCst);
        }
        Ok(Response::new(after))
    }
}

fn account(request: &Request<Transfer>, name: &str) -> Result<usize, Status> {
    let named = request
        .metadata()
        .get(name)
        .and_then(|value| value.to_str().ok());
    let account = ACCOUNTS.iter().position(|account| Some(*account) == named);
    account.ok_or_else(|| Status::not_found(format!("the account of `{name}` does not exist")))
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
            let method = service_fn(move |request| bank.clone().transfer(request));
            let mut server = tonic::server::Grpc::new(ProstCodec::default());
            Ok(server.unary(method, request).await)
        })
    }
}
