//! One server of the service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use lock_core::fencing::StaleToken;
use lock_core::prelude::*;
use lock_tower::{HeldLock, KeyLockLayer, Keys, Locker};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::Result;
use crate::mode::Mode;
use crate::shop::Shop;
use crate::till::{OrderIds, Sold, Thought, Till};

/// Of the locks of all items.
pub(crate) const NAMESPACE: &str = "flash-sale";

#[derive(Debug)]
pub(crate) struct Instance {
    address: SocketAddr,
    till: Arc<Till>,
    locker: Locker,
    server: JoinHandle<()>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Ask {
    pub(crate) buyer: i64,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Receipt {
    pub(crate) order: String,
}

impl Instance {
    pub(crate) async fn start(
        backend: &str,
        database: &str,
        mode: Mode,
        thought: Arc<Thought>,
    ) -> Result<Self> {
        let locks = polylock::connect(backend).await?;
        let started = locks.lock("flash-sale-instances").await?;
        let number = started.fencing_token();
        started.release().await?;
        let till = Arc::new(Till {
            shop: Shop::open(database).await?,
            mode,
            ids: OrderIds::of(number.ok_or("the backend has no fencing tokens")?),
            thought,
            retries: AtomicU32::new(0),
        });
        // Every buyer gets an answer from stock: longer than a web page would let them wait.
        let locker = Locker::builder(locks, NAMESPACE)
            .wait(Duration::from_secs(30))
            .max_waiters_per_key(1000)
            .build()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app = router(locker.clone(), Arc::clone(&till));
        let server = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
        Ok(Self {
            address,
            till,
            locker,
            server,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it, and says how often its orders began again.
    pub(crate) async fn stop(self) -> Result<u32> {
        self.server.abort();
        if !self.locker.shutdown(Duration::from_secs(5)).await {
            return Err("a lock has not been given back".into());
        }
        self.till.shop.clone().close().await;
        Ok(self.till.retries.load(Ordering::Relaxed))
    }
}

fn router(locker: Locker, till: Arc<Till>) -> Router {
    let mut orders = post(order);
    if till.mode.locks() {
        let layer =
            KeyLockLayer::from_extractor::<Path<String>, _>(locker, |Path(item)| Keys::one(item));
        orders = orders.layer(layer);
    }
    Router::new()
        .route("/items/{item}/orders", orders)
        .with_state(till)
}

/// The same for every mode.
async fn order(
    State(till): State<Arc<Till>>,
    Path(item): Path<String>,
    held: Option<HeldLock>,
    Json(ask): Json<Ask>,
) -> Response {
    let token = held.and_then(|held| held.fencing_token());
    match till.sell(&item, ask.buyer, token).await {
        Ok(Sold::Again(order)) => Json(Receipt { order }).into_response(),
        Ok(Sold::New(order)) => (StatusCode::CREATED, Json(Receipt { order })).into_response(),
        Ok(Sold::Out) => (StatusCode::GONE, "sold out").into_response(),
        // Nothing was written, and another try gets another lock.
        Err(error) if error.is::<StaleToken>() => {
            (StatusCode::SERVICE_UNAVAILABLE, "too late, try again").into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
