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
//! | none | each request charges the card |
//! | store | receipts are stored and repeated; until there is one, each request charges the card |
//! | layer | `IdempotencyLayer`: a lock for each key, and stored responses |
//!
//! Responses are in memory here; `SqlResponses` keeps them in a database. If the effect is in that
//! database too, `SqlResponses::put_in` makes effect and response one transaction: without that, an
//! instance that dies between the two leaves a charge without a response.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
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
    for mode in [Mode::None, Mode::Store, Mode::Layer] {
        let charges = pay_all(url, mode).await?;
        ensure!(
            (charges == 1) == (mode == Mode::Layer),
            "{mode:?}: charged {charges} times"
        );
    }
    let service = instance(url, Mode::Layer, Arc::default(), Arc::default()).await?;
    let send = async |key, cents| {
        let answer = service.clone().oneshot(request(0, key, cents)?).await?;
        anyhow::Ok(answer.status())
    };
    let first = send(Some("payment-1"), "1000").await?;
    let other = send(Some("payment-1"), "9999").await?;
    let none = send(None, "1000").await?;
    println!("first {first}, other amount with its key {other}, no key {none}");
    ensure!([first, other, none].map(|status| status.as_u16()) == [201, 422, 400]);
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Layer,
    None,
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
    let charges = lock(&bank.charges);
    let (sum, max) = (charges.values().sum::<usize>(), charges.values().max());
    let (max, name) = (*max.context("nobody paid")?, format!("{mode:?}"));
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
    let click = || request(card, Some("payment-1"), "1000");
    let clicks = async {
        let (one, other) = (send(0).oneshot(click()?), send(1).oneshot(click()?));
        let (one, other) = tokio::join!(one, other);
        anyhow::Ok([one?.status(), other?.status()])
    };
    let is_patient = card.is_multiple_of(2);
    let limit = if is_patient {
        Duration::from_secs(10)
    } else {
        HASTE
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

fn request(card: usize, key: Option<&str>, cents: &str) -> Result<Request> {
    let mut request =
        Request::post("/payments").header("authorization", format!("Bearer secret-of-{card}"));
    if let Some(key) = key {
        request = request.header("idempotency-key", format!("\"{key}\""));
    }
    Ok(request.body(Body::from(cents.to_owned()))?)
}

/// One process of the service, connected by itself.
async fn instance(
    url: &str,
    mode: Mode,
    bank: Arc<Bank>,
    responses: Arc<MemoryResponses>,
) -> Result<Router> {
    let payments = match mode {
        Mode::None => post(charge),
        Mode::Store => post(charge_unless_stored),
        Mode::Layer => {
            let locks = polylock::connect(url).await?;
            // Whoever comes while the first request is handled gets 409 and does not wait.
            let locker = Locker::builder(locks, "payments").try_only().build()?;
            post(charge).layer(IdempotencyLayer::new(
                locker,
                responses,
                KeyScope::per_client(customer),
            )?)
        }
    };
    let payments = payments.layer(from_fn(authenticate));
    Ok(Router::new().route("/payments", payments).with_state(bank))
}

/// Charges of each card, and the receipts that the mode "store" keeps.
#[derive(Default)]
struct Bank {
    charges: Mutex<HashMap<usize, usize>>,
    receipts: Mutex<HashMap<usize, String>>,
}

async fn charge(
    State(bank): State<Arc<Bank>>,
    Extension(Card(card)): Extension<Card>,
    cents: String,
) -> (StatusCode, String) {
    *lock(&bank.charges).entry(card).or_default() += 1;
    sleep(CHARGING).await;
    let receipt = format!("{cents} cents from card {card}");
    (StatusCode::CREATED, receipt)
}

/// Do not do this: two requests at once both find nothing stored.
async fn charge_unless_stored(
    bank: State<Arc<Bank>>,
    card: Extension<Card>,
    cents: String,
) -> (StatusCode, String) {
    let (receipts, key) = (Arc::clone(&bank), card.0.0);
    let stored = lock(&receipts.receipts).get(&key).cloned();
    if let Some(receipt) = stored {
        return (StatusCode::CREATED, receipt);
    }
    let (status, receipt) = charge(bank, card, cents).await;
    lock(&receipts.receipts).insert(key, receipt.clone());
    (status, receipt)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy)]
struct Card(usize);

/// Goes before everything that asks who it is. A real secret cannot be guessed.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let credentials = request
        .headers()
        .get("authorization")
        .and_then(|it| it.to_str().ok());
    let card = credentials.and_then(|it| it.strip_prefix("Bearer secret-of-")?.parse().ok());
    request
        .extensions_mut()
        .insert(Card(card.ok_or(StatusCode::UNAUTHORIZED)?));
    Ok(next.run(request).await)
}

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
