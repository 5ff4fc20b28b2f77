//! The service: it reads two balances and writes them, in two steps. With a `.proto` file, most of
//! this is generated.

use std::convert::Infallible;
use std::pin::Pin;
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

/// The database of all instances, in cents. It checks nothing: that is left to the lock.
pub(crate) type Ledger = Mutex<[u64; ACCOUNTS.len()]>;

/// Serves `bank.Bank/Transfer`.
#[derive(Clone, Debug)]
pub(crate) struct Bank(pub(crate) Arc<Ledger>);

impl Bank {
    async fn transfer(self, request: Request<Transfer>) -> Result<Response<Balances>, Status> {
        let (from, to) = (account(&request, "from")?, account(&request, "to")?);
        let ledger = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, cents) = (*ledger(), request.get_ref().cents);
        // The time a database takes to answer; without a lock another call comes in between.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let after = Balances {
            from: before[from] - cents,
            to: before[to] + cents,
        };
        let mut ledger = ledger();
        (ledger[from], ledger[to]) = (after.from, after.to);
        Ok(Response::new(after))
    }
}

fn account(request: &Request<Transfer>, name: &str) -> Result<usize, Status> {
    let named = request.metadata().get(name);
    let named = named.and_then(|value| value.to_str().ok());
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
