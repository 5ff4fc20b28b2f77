//! The service: it reads two balances and writes them, as two steps.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Request, Response, Status};
use tower::Service;

use crate::ACCOUNTS;
use crate::proto::{Balances, Proto, Transfer};

/// The database of all instances. It checks nothing: that is left to the lock.
#[derive(Debug)]
pub(crate) struct Ledger {
    cents: Mutex<[u64; ACCOUNTS.len()]>,
    /// Calls that are at work on an account, and how often one found another one there.
    at_work: [AtomicU64; ACCOUNTS.len()],
    overlaps: AtomicU64,
}

impl Ledger {
    pub(crate) fn new(cents: u64) -> Arc<Self> {
        Arc::new(Self {
            cents: Mutex::new([cents; ACCOUNTS.len()]),
            at_work: Default::default(),
            overlaps: AtomicU64::new(0),
        })
    }

    pub(crate) fn balances(&self) -> [u64; ACCOUNTS.len()] {
        *self.cents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn overlaps(&self) -> u64 {
        self.overlaps.load(Ordering::SeqCst)
    }

    fn write(&self, account: usize, cents: u64) {
        self.cents.lock().unwrap_or_else(PoisonError::into_inner)[account] = cents;
    }

    fn enter(&self, account: usize) -> AtWork<'_> {
        let at_work = &self.at_work[account];
        if at_work.fetch_add(1, Ordering::SeqCst) > 0 {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        AtWork(at_work)
    }
}

/// A call that is at work on an account, until it is done or dropped.
struct AtWork<'a>(&'a AtomicU64);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Serves `bank.Bank/Transfer`.
#[derive(Clone, Debug)]
pub(crate) struct Bank {
    pub(crate) ledger: Arc<Ledger>,
}

impl Bank {
    async fn transfer(self, request: Request<Transfer>) -> Result<Response<Balances>, Status> {
        let [from, to] = ["from", "to"].map(|name| account(&request, name));
        let (from, to, ledger) = (from?, to?, self.ledger);
        let _at_work = [from, to].map(|account| ledger.enter(account));
        let before = ledger.balances();
        // What a database takes to answer; another call may come in between.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let cents = request.get_ref().cents;
        let after = Balances {
            from: before[from].saturating_sub(cents),
            to: before[to].saturating_add(cents),
        };
        ledger.write(from, after.from);
        ledger.write(to, after.to);
        Ok(Response::new(after))
    }
}

fn account(request: &Request<Transfer>, name: &str) -> Result<usize, Status> {
    let named = request.metadata().get(name).and_then(|v| v.to_str().ok());
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
            let method = tower::service_fn(move |request| bank.clone().transfer(request));
            let mut server = tonic::server::Grpc::new(Proto::new());
            Ok(server.unary(method, request).await)
        })
    }
}
