//! Those who pay.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;

use crate::Result;
use crate::customer;
use crate::service::{Payment, Receipt};

/// What all clients were told together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) requests: usize,
    /// 201, of which some are the same response again.
    pub(crate) receipts: usize,
    pub(crate) replayed: usize,
    /// 409
    pub(crate) busy: usize,
    /// Those that the client did not wait for.
    pub(crate) given_up: usize,
    /// The charges on the receipts of each card.
    pub(crate) charges: BTreeMap<u32, BTreeSet<u64>>,
}

impl Answers {
    fn add(&mut self, card: u32, answer: Answer) {
        self.requests += 1;
        match answer {
            Answer::Busy => self.busy += 1,
            Answer::Nothing => self.given_up += 1,
            Answer::Paid { charge, replayed } => {
                self.receipts += 1;
                self.replayed += usize::from(replayed);
                self.charges.entry(card).or_default().insert(charge);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Busy,
    Nothing,
    Paid { charge: u64, replayed: bool },
}

/// All of them pay at the same time.
pub(crate) async fn pay(instances: &[SocketAddr], payments: u32) -> Result<Answers> {
    let mut clients = JoinSet::new();
    for card in 0..payments {
        // Each begins at another instance; if there is one only, it is asked twice.
        let instances = instances.iter().copied().cycle().skip(card as usize);
        clients.spawn(pay_once(card, instances.take(2).collect()));
    }
    let mut answers = Answers::default();
    while let Some(paid) = clients.join_next().await {
        let (card, heard) = paid??;
        heard
            .into_iter()
            .for_each(|answer| answers.add(card, answer));
    }
    Ok(answers)
}

/// One payment, until there is a receipt, and once more: whoever asks later hears the same.
async fn pay_once(card: u32, instances: Vec<SocketAddr>) -> Result<(u32, Vec<Answer>)> {
    // Connections of its own: to hang up is to close one.
    let client = legacy::Client::builder(TokioExecutor::new()).build_http();
    let patience = if card.is_multiple_of(2) {
        PATIENCE
    } else {
        HASTE
    };
    let click = |instance| ask(&client, instance, card, patience);
    let (first, second) = tokio::join!(click(instances[0]), click(instances[1]));
    let mut heard = vec![first?, second?];
    for instance in instances.iter().cycle().take(TRIES) {
        let answer = ask(&client, *instance, card, PATIENCE).await?;
        heard.push(answer);
        if let Answer::Paid { .. } = answer {
            heard.push(ask(&client, instances[0], card, PATIENCE).await?);
            return Ok((card, heard));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(format!("card {card} has no receipt after {TRIES} tries").into())
}

type Client = legacy::Client<HttpConnector, Full<Bytes>>;

const HASTE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(10);
/// `Retry-After` would be a second.
const PAUSE: Duration = Duration::from_millis(25);
const TRIES: usize = 200;

async fn ask(
    client: &Client,
    instance: SocketAddr,
    card: u32,
    patience: Duration,
) -> Result<Answer> {
    let request = client.request(payment(instance, Some(card), 1000)?);
    let Ok(response) = tokio::time::timeout(patience, request).await else {
        return Ok(Answer::Nothing);
    };
    let (head, body) = response?.into_parts();
    let body = body.collect().await?.to_bytes();
    match head.status {
        StatusCode::CREATED => Ok(Answer::Paid {
            charge: serde_json::from_slice::<Receipt>(&body)?.charge,
            replayed: head.headers.contains_key("idempotent-replayed"),
        }),
        StatusCode::CONFLICT => Ok(Answer::Busy),
        other => Err(format!("{other}: {}", String::from_utf8_lossy(&body)).into()),
    }
}

/// What is answered to a payment without a key, and to another amount with the key of a payment.
pub(crate) async fn refused(instance: SocketAddr) -> Result<[u16; 2]> {
    let client: Client = legacy::Client::builder(TokioExecutor::new()).build_http();
    let keyless = client.request(payment(instance, None, 1000)?).await?;
    let reused = client.request(payment(instance, Some(0), 9999)?).await?;
    Ok([keyless, reused].map(|response| response.status().as_u16()))
}

fn payment(instance: SocketAddr, card: Option<u32>, cents: u32) -> Result<Request<Full<Bytes>>> {
    let mut request = Request::post(format!("http://{instance}/payments"))
        .header("content-type", "application/json");
    if card.is_some() {
        // Every customer begins to count at 1.
        request = request.header("idempotency-key", "\"payment-1\"");
    }
    let card = card.unwrap_or_default();
    request = request.header("authorization", customer::credentials_of(card));
    let body = serde_json::to_vec(&Payment { card, cents })?;
    Ok(request.body(Full::from(body))?)
}
