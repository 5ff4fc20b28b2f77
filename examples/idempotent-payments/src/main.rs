//! Payments that are sent more than once: by double clicks, and by clients that time out and try
//! again.
//!
//! ```console
//! $ cargo run -p idempotent-payments
//! $ cargo run -p idempotent-payments --features polylock/redis -- redis://localhost
//! ```
//!
//! Three instances of an axum service take `POST /payments` and charge a card, which takes 100 ms
//! and cannot be undone. Each of 20 customers clicks twice, hangs up after 20 ms, and sends the
//! payment again until there is a receipt, always with one `Idempotency-Key`.
//!
//! A service that only stores which card has paid charges a card for every request that comes before
//! the first one has ended. With `IdempotencyLayer`, a lock for each key and stored responses, it
//! charges each card once, and answers later requests with the stored response.
//!
//! Responses are in memory here; `SqlResponses` keeps them in a database. If the effect is in that
//! database too, `SqlResponses::put_in` makes effect and response one transaction: without that, an
//! instance that dies between the two leaves a charge without a response.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use futures_util::future::{try_join, try_join_all};
use polylock::tower::idempotency::{IdempotencyLayer, KeyScope, MemoryResponses};
use polylock::tower::{KeyError, Locker};
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

const CUSTOMERS: usize = 20;
const CHARGING: Duration = Duration::from_millis(100);
const HASTE: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    run(url.as_deref().unwrap_or("memory:idempotent-payments")).await
}

async fn run(url: &str) -> Result<()> {
    let bank = Arc::default();
    let store = instance(post(charge_unless_stored), &bank);
    let (sum, _) = pay_all("store", &bank, &[store.clone(), store.clone(), store]).await?;
    ensure!(sum > CUSTOMERS, "no card was charged twice");

    let (bank, responses) = (Arc::default(), Arc::<MemoryResponses>::default());
    let mut layered = Vec::new();
    for _ in 0..3 {
        // Each instance has a connection of its own, as if it were another process.
        let locks = polylock::connect(url).await?;
        // A request that comes while the first one is handled gets 409 and does not wait.
        let locker = Locker::builder(locks, "payments").try_only().build()?;
        let (responses, scope) = (Arc::clone(&responses), KeyScope::per_client(customer));
        let layer = IdempotencyLayer::new(locker, responses, scope)?;
        layered.push(instance(post(charge).layer(layer), &bank));
    }
    let (sum, replayed) = pay_all("layer", &bank, &layered).await?;
    ensure!(sum == CUSTOMERS, "a card was charged twice");
    ensure!(replayed > 0, "no stored response was replayed");
    Ok(())
}

fn instance(payments: MethodRouter<Arc<Bank>>, bank: &Arc<Bank>) -> Router {
    let service = Router::new().route("/payments", payments);
    service.with_state(Arc::clone(bank))
}

/// Lets all customers pay at the same time. Returns the numbers of charges and of replayed receipts.
async fn pay_all(name: &str, bank: &Bank, instances: &[Router]) -> Result<(usize, usize)> {
    let receipts = try_join_all((0..CUSTOMERS).map(|card| pay(card, instances))).await?;
    let replayed = receipts.iter().filter(|is_replayed| **is_replayed).count();
    let sum: usize = bank.charges.iter().map(|it| it.load(Relaxed)).sum();
    println!("{name}: {sum} charges for {CUSTOMERS} payments, {replayed} replayed");
    Ok((sum, replayed))
}

/// One payment. Returns whether the receipt is the stored response to a request before.
async fn pay(card: usize, instances: &[Router]) -> Result<bool> {
    let click = |n: usize| send(card, &instances[(card + n) % instances.len()]);
    // To hang up drops the futures of the handlers, as a server does when a connection closes.
    drop(timeout(HASTE, try_join(click(0), click(1))).await);
    for attempt in 2..200 {
        let response = click(attempt).await?;
        match response.status() {
            StatusCode::CREATED => {
                return Ok(response.headers().contains_key("idempotent-replayed"));
            }
            // Another instance is still charging; a real client waits for `Retry-After`.
            StatusCode::CONFLICT => sleep(Duration::from_millis(25)).await,
            other => bail!("{other}"),
        }
    }
    bail!("card {card} has no receipt")
}

async fn send(card: usize, instance: &Router) -> Result<Response> {
    // The authentication puts the card there.
    let request = Request::post("/payments").extension(card);
    let request = request.header("idempotency-key", "payment-1");
    let request = request.body(Body::from("1000 cents"))?;
    Ok(instance.clone().oneshot(request).await?)
}

/// For each card how often it was charged, and what the service without the layer stores.
#[derive(Default)]
struct Bank {
    charges: [AtomicUsize; CUSTOMERS],
    has_paid: [AtomicBool; CUSTOMERS],
}

async fn charge(bank: State<Arc<Bank>>, card: Extension<usize>) -> StatusCode {
    bank.charges[card.0].fetch_add(1, Relaxed);
    sleep(CHARGING).await;
    StatusCode::CREATED
}

/// Do not do this: two requests at once both find nothing stored.
async fn charge_unless_stored(bank: State<Arc<Bank>>, card: Extension<usize>) -> StatusCode {
    let has_paid = &bank.has_paid[card.0];
    if !has_paid.load(Relaxed) {
        charge(bank.clone(), card).await;
        has_paid.store(true, Relaxed);
    }
    StatusCode::CREATED
}

/// Keys are chosen by clients, here all choose the same: each customer has keys of its own.
fn customer(parts: &Parts) -> Result<String, KeyError> {
    let card = parts.extensions.get::<usize>().map(usize::to_string);
    card.ok_or_else(|| {
        let mut response = Response::new(Bytes::from_static(b"log in first\n"));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        KeyError::Response(Box::new(response))
    })
}

#[cfg(test)]
mod tests {
    use super::{KeyError, Request, StatusCode, customer};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn layer_charges_each_card_once() -> anyhow::Result<()> {
        super::run("memory:test").await
    }

    #[test]
    fn a_request_without_a_login_is_answered_with_401() -> anyhow::Result<()> {
        let (parts, ()) = Request::post("/payments").body(())?.into_parts();
        match customer(&parts) {
            Err(KeyError::Response(response)) => {
                assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }
}
