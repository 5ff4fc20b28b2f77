//! The crowd in front of the shop.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::http::{Request, StatusCode};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::Result;
use crate::instance::{Ask, Receipt};

/// What the buyers were told, all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) requests: usize,
    pub(crate) took: Duration,
    /// 201
    pub(crate) new: usize,
    /// 200
    pub(crate) again: usize,
    /// 410
    pub(crate) sold_out: usize,
    /// 429 and 503
    pub(crate) turned_away: usize,
    /// The orders that each buyer was told of.
    pub(crate) orders: BTreeMap<i64, BTreeSet<String>>,
}

impl Answers {
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64()
    }

    fn add(&mut self, buyer: i64, status: StatusCode, body: &[u8]) -> Result<()> {
        self.requests += 1;
        match status {
            StatusCode::CREATED => self.new += 1,
            StatusCode::OK => self.again += 1,
            StatusCode::GONE => self.sold_out += 1,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                self.turned_away += 1;
            }
            other => {
                let body = String::from_utf8_lossy(body);
                return Err(format!("buyer {buyer} got {other}: {body}").into());
            }
        }
        if status.is_success() {
            let receipt: Receipt = serde_json::from_slice(body)?;
            self.orders.entry(buyer).or_default().insert(receipt.order);
        }
        Ok(())
    }
}

/// Sends the requests of all buyers, `clients` at a time.
pub(crate) async fn buy(
    instances: &[SocketAddr],
    item: &str,
    buyers: u32,
    clients: usize,
) -> Result<Answers> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    // The clicks of one buyer go to two instances, side by side.
    let clicks = (0..buyers as usize).flat_map(|buyer| {
        let clicks = if buyer % 10 == 9 { 2 } else { 1 };
        (0..clicks).map(move |click| (buyer as i64, instances[(buyer + click) % instances.len()]))
    });
    let requests: Vec<_> = clicks
        .map(|(buyer, instance)| ask(client.clone(), instance, item.to_owned(), buyer))
        .collect();
    let began = Instant::now();
    let answered: Vec<_> = stream::iter(requests)
        .buffer_unordered(clients)
        .try_collect()
        .await?;
    let mut answers = Answers {
        took: began.elapsed(),
        ..Answers::default()
    };
    for (buyer, status, body) in answered {
        answers.add(buyer, status, &body)?;
    }
    Ok(answers)
}

async fn ask(
    client: Client<HttpConnector, Full<Bytes>>,
    instance: SocketAddr,
    item: String,
    buyer: i64,
) -> Result<(i64, StatusCode, Bytes)> {
    let body = serde_json::to_vec(&Ask { buyer })?;
    let request = Request::post(format!("http://{instance}/items/{item}/orders"))
        .header("content-type", "application/json")
        .body(Full::from(body))?;
    let (parts, body) = client.request(request).await?.into_parts();
    Ok((buyer, parts.status, body.collect().await?.to_bytes()))
}
