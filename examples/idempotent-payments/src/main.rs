//! Payments that are sent more than once: by double clicks, and by clients that time out and try
//! again.
//!
//! ```console
//! $ cargo run -p idempotent-payments
//! $ cargo run -p idempotent-payments --features polylock/redis -- redis://localhost
//! ```
//!
//! Three instances of an axum service take `POST /payments` and charge a card, which takes 100 ms
//! and cannot be undone. Each of 20 customers has one payment with one `Idempotency-Key`. It goes to
//! two instances at once and again until there is a receipt; every second customer hangs up after
//! 20 ms.
//!
//! | mode | what happens |
//! |---|---|
//! | store | receipts are stored and repeated, without a lock; until there is one, each request charges the card |
//! | layer | `IdempotencyLayer`: a lock for each key, and stored responses |
//!
//! Responses are in memory here; `SqlResponses` keeps them in a database. If the effect is in that
//! database too, `SqlResponses::put_in` makes effect and response one transaction: without that, an
//! instance that dies between the two leaves a charge without a response.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::post;
use polylock::tower::idempotency::{IdempotencyLayer, KeyScope, MemoryResponses};
use polylock::tower::{KeyError, Locker};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

const INSTANCES: usize = 3;
const CUSTOMERS: usize = 20;
const CHARGING: Duration = Duration::from_millis(100);
const HASTE: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    run(url.as_deref().unwrap_or("memory:idempotent-payments")).await
}

async fn run(url: &str) -> Result<()> {
    for mode in [Mode::Store, Mode::Layer] {
        let charges = pay_all(url, mode).await?;
        ensure!(
            (charges == 1) == (mode == Mode::Layer),
            "{mode:?}: charged {charges} times"
        );
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Layer,
    Store,
}

/// All customers pay at the same time. Returns the most charges of one card.
async fn pay_all(url: &str, mode: Mode) -> Result<usize> {
    let (bank, responses) = (Arc::new(Bank::default()), Arc::default());
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        instances.push(instance(url, mode, Arc::clone(&bank), Arc::clone(&responses)).await?);
    }
    let mut customers = JoinSet::new();
    for card in 0..CUSTOMERS {
        customers.spawn(pay(card, instances.clone()));
    }
    let mut replayed = 0;
    for receipt in customers.join_all().await {
        replayed += usize::from(receipt?);
    }
    let charges: Vec<_> = bank.cards().values().map(|(charges, _)| *charges).collect();
    let (sum, name) = (charges.iter().sum::<usize>(), format!("{mode:?}"));
    let max = charges.iter().copied().max().unwrap_or(0);
    println!(
        "{name:<6} {sum:>2} charges for {CUSTOMERS} payments, max {max} per card, {replayed} replayed"
    );
    ensure!(charges.len() == CUSTOMERS, "a card was not charged");
    Ok(max)
}

/// One payment, until there is a receipt. Returns whether that is the repeated response of a request
/// before.
async fn pay(card: usize, instances: Vec<Router>) -> Result<bool> {
    let send = |n: usize| instances[(card + n) % INSTANCES].clone();
    let click = || {
        // The authentication puts the card there.
        let request = Request::post("/payments").extension(Card(card));
        let request = request.header("idempotency-key", "payment-1");
        request.body(Body::from("1000"))
    };
    let clicks = async {
        let (one, other) = (send(0).oneshot(click()?), send(1).oneshot(click()?));
        let (one, other) = tokio::join!(one, other);
        anyhow::Ok([one?.status(), other?.status()])
    };
    let limit = match card.is_multiple_of(2) {
        true => Duration::from_secs(10),
        false => HASTE,
    };
    // To hang up drops the futures of the handlers, as a server does when a connection closes.
    if let Ok(statuses) = timeout(limit, clicks).await {
        let has_receipt = statuses?.contains(&StatusCode::CREATED);
        ensure!(has_receipt, "neither click has a receipt");
    }
    for attempt in 2..200 {
        let response = send(attempt).oneshot(click()?).await?;
        match response.status() {
            StatusCode::CREATED => {
                return Ok(response.headers().contains_key("idempotent-replayed"));
            }
            // Another instance is still charging; a real client waits for `Retry-After`.
            StatusCode::CONFLICT => sleep(Duration::from_millis(25)).await,
            other => anyhow::bail!("{other}: {:?}", to_bytes(response.into_body(), 1000).await?),
        }
    }
    anyhow::bail!("card {card} has no receipt")
}

/// One process of the service, connected by itself.
async fn instance(
    url: &str,
    mode: Mode,
    bank: Arc<Bank>,
    responses: Arc<MemoryResponses>,
) -> Result<Router> {
    let payments = match mode {
        Mode::Store => post(charge_unless_stored),
        Mode::Layer => {
            let locks = polylock::connect(url).await?;
            // Whoever comes while the first request is handled gets 409 and does not wait.
            let locker = Locker::builder(locks, "payments").try_only().build()?;
            let scope = KeyScope::per_client(customer);
            post(charge).layer(IdempotencyLayer::new(locker, responses, scope)?)
        }
    };
    Ok(Router::new().route("/payments", payments).with_state(bank))
}

/// For each card how often it was charged, and the receipt that the mode "store" keeps.
#[derive(Default)]
struct Bank(Mutex<HashMap<usize, (usize, Option<String>)>>);

impl Bank {
    fn cards(&self) -> MutexGuard<'_, HashMap<usize, (usize, Option<String>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn charge(
    State(bank): State<Arc<Bank>>,
    Extension(Card(card)): Extension<Card>,
    cents: String,
) -> (StatusCode, String) {
    bank.cards().entry(card).or_default().0 += 1;
    sleep(CHARGING).await;
    let receipt = format!("{cents} cents from card {card}");
    (StatusCode::CREATED, receipt)
}

/// Do not do this: two requests at once both find nothing stored.
async fn charge_unless_stored(
    State(bank): State<Arc<Bank>>,
    card: Extension<Card>,
    cents: String,
) -> (StatusCode, String) {
    let number = card.0.0;
    let stored = bank
        .cards()
        .get(&number)
        .and_then(|(_, receipt)| receipt.clone());
    if let Some(receipt) = stored {
        return (StatusCode::CREATED, receipt);
    }
    let (status, receipt) = charge(State(Arc::clone(&bank)), card, cents).await;
    bank.cards().entry(number).or_default().1 = Some(receipt.clone());
    (status, receipt)
}

#[derive(Clone, Copy)]
struct Card(usize);

/// Keys are chosen by clients, here all choose the same: each customer has keys of its own.
fn customer(parts: &Parts) -> Result<String, KeyError> {
    let card = parts.extensions.get().map(|Card(card)| card.to_string());
    card.ok_or_else(|| KeyError::Misconfigured("nobody has authenticated".to_owned()))
}

#[cfg(test)]
mod tests {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn layer_charges_each_card_once() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
