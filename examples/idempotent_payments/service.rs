//! One server of the service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use http_body_util::BodyExt as _;
use lock_core::{DistributedLock, LockKey};
use lock_tower::Locker;
use lock_tower::idempotency::{
    Fingerprint, IdempotencyLayer, KeyScope, ResponseStore as _, SqlResponses, StoredResponse,
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::Result;
use crate::customer::{self, Customer};

/// What keeps a payment from being made twice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    None,
    Store,
    Layer,
}

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::None, Self::Store, Self::Layer];
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Payment {
    pub(crate) card: u32,
    pub(crate) cents: u32,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Receipt {
    pub(crate) charge: u64,
}

/// The cards, which know nothing of keys.
#[derive(Debug, Default)]
pub(crate) struct Cards {
    /// How often each was charged.
    charges: Mutex<BTreeMap<u32, u32>>,
    last: AtomicU64,
}

impl Cards {
    async fn charge(&self, card: u32) -> u64 {
        *self.lock().entry(card).or_default() += 1;
        tokio::time::sleep(CHARGING).await;
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn charges(&self) -> BTreeMap<u32, u32> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, u32>> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const CHARGING: Duration = Duration::from_millis(100);

pub(crate) struct Instance {
    address: SocketAddr,
    locker: Locker,
    server: JoinHandle<()>,
}

impl Instance {
    pub(crate) async fn start(
        mode: Mode,
        locks: Arc<dyn DistributedLock>,
        responses: SqlResponses,
        cards: Arc<Cards>,
    ) -> Result<Self> {
        // Who comes while the first is being handled is told so, and does not wait.
        let locker = Locker::builder(locks, "payments").try_only().build()?;
        let payments = match mode {
            Mode::None => post(charge),
            Mode::Store => post(charge).layer(from_fn_with_state(responses, store_only)),
            Mode::Layer => {
                let customers = KeyScope::per_client(customer::scope);
                let responses = Arc::new(responses);
                post(charge).layer(IdempotencyLayer::new(locker.clone(), responses, customers))
            }
        };
        let payments = payments.layer(from_fn(customer::authenticate));
        let app = Router::new().route("/payments", payments).with_state(cards);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
        Ok(Self {
            address,
            locker,
            server,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.server.abort();
        match self.locker.shutdown(Duration::from_secs(5)).await {
            true => Ok(()),
            false => Err("a lock has not been given back".into()),
        }
    }
}

/// The same for every mode.
async fn charge(
    State(cards): State<Arc<Cards>>,
    Json(payment): Json<Payment>,
) -> (StatusCode, Json<Receipt>) {
    let charge = cards.charge(payment.card).await;
    (StatusCode::CREATED, Json(Receipt { charge }))
}

/// What a layer without a lock does: look, handle, store.
async fn store_only(
    State(responses): State<SqlResponses>,
    Extension(Customer(customer)): Extension<Customer>,
    request: Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    let key = request.headers().get("idempotency-key");
    let key = key.and_then(|key| LockKey::new(format!("{customer}:{}", key.to_str().ok()?)).ok());
    let key = key.ok_or(StatusCode::BAD_REQUEST)?;
    if let Some(stored) = responses.get(&key).await.map_err(|_| failed)? {
        let body = stored.body().cloned().unwrap_or_default();
        let replayed = [("idempotent-replayed", "true")];
        return Ok((stored.status(), replayed, body).into_response());
    }
    let (head, body) = next.run(request).await.into_parts();
    let body = body.collect().await.map_err(|_| failed)?.to_bytes();
    let response = Response::from_parts(head.clone(), Some(body.clone()));
    let stored = StoredResponse::new(Fingerprint::from_bytes([0; 32]), &response);
    let put = responses.put(&key, &stored, None, Duration::from_secs(60));
    put.await.map_err(|_| failed)?;
    Ok((head, body).into_response())
}
