use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use polylock_core::engine::{Entropy as _, OsEntropy};
use polylock_core::{FencingToken, LockKey};
use sha2::{Digest as _, Sha256};

use super::StoreError;

/// A stored response, with the fingerprint of its request.
///
/// It has the status, the body and the fields of the head, except fields that concern one connection
/// (`Connection` and the fields it names, `Keep-Alive`, `Proxy-Authenticate`, `Proxy-Connection`, `TE`,
/// `Trailer`, `Transfer-Encoding`, `Upgrade`), fields that the server adds to each response
/// (`Content-Length`, `Date`), `Server-Timing` and `Idempotent-Replayed`, which concern one run or one answer,
/// and `Set-Cookie`: cookies open sessions, and should not be in a store for a day. Trailers are not stored.
/// `X-Fencing-Token` is stored: a replay has that of the run whose response it is.
///
/// The example of [`ResponseStore`](super::ResponseStore) stores some.
#[derive(Clone, Eq, PartialEq)]
pub struct StoredResponse {
    pub(super) execution_id: u128,
    pub(super) fingerprint: [u8; 32],
    status: StatusCode,
    headers: HeaderMap,
    body: Option<Bytes>,
}

impl StoredResponse {
    /// Creates a stored response from a response of the handler. Without a body, it records that the body
    /// was too large or broke off.
    ///
    /// The layer draws an id for each execution, and makes the fingerprint of method, path, query and
    /// body of the request.
    #[must_use]
    pub fn new(
        execution_id: u128,
        fingerprint: [u8; 32],
        response: &Response<Option<Bytes>>,
    ) -> Self {
        Self {
            execution_id,
            fingerprint,
            status: response.status(),
            headers: lasting(response.headers()),
            body: response.body().clone(),
        }
    }

    /// What a store keeps: the execution (16 bytes), the fingerprint (32), the status (2), the length
    /// of the head (8), the fields of the head as lines of `name:value`, and a byte that is 1 before
    /// the body and 0 without one. Numbers are big-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        for (name, value) in &self.headers {
            // No value contains a line feed.
            fields.extend([name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"].concat());
        }
        let (marker, body) = match &self.body {
            Some(body) => (1, &body[..]),
            None => (0, &[][..]),
        };
        [
            &self.execution_id.to_be_bytes()[..],
            &self.fingerprint,
            &self.status.as_u16().to_be_bytes(),
            &(fields.len() as u64).to_be_bytes(),
            &fields,
            &[marker],
            body,
        ]
        .concat()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) made.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it is something else.
    pub fn from_bytes(stored: impl Into<Bytes>) -> Result<Self, StoreError> {
        let parsed = parse(&stored.into());
        parsed.ok_or_else(|| StoreError::new("a stored response cannot be read"))
    }

    /// The record that there was a response.
    pub(super) fn without_body(mut self) -> Self {
        self.headers.clear();
        self.body = None;
        self
    }

    /// The response for a repetition of the request; `None` if the body was not stored.
    pub(super) fn replay(self) -> Option<Response<Bytes>> {
        let mut response = Response::new(self.body?);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        let replayed = HeaderValue::from_static("true");
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, replayed);
        Some(response)
    }
}

fn parse(stored: &Bytes) -> Option<StoredResponse> {
    let (execution_id, rest) = stored.split_first_chunk()?;
    let (fingerprint, rest) = rest.split_first_chunk()?;
    let (status, rest) = rest.split_first_chunk()?;
    let (head, rest) = rest.split_first_chunk()?;
    let head = usize::try_from(u64::from_be_bytes(*head)).ok()?;
    let (fields, rest) = rest.split_at_checked(head)?;
    let (marker, body) = rest.split_first()?;
    let mut headers = HeaderMap::new();
    let lines = fields.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(&line[colon + 1..]).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(StoredResponse {
        execution_id: u128::from_be_bytes(*execution_id),
        fingerprint: *fingerprint,
        status: StatusCode::from_u16(u16::from_be_bytes(*status)).ok()?,
        headers,
        body: match marker {
            0 if body.is_empty() => None,
            1 => Some(stored.slice_ref(body)),
            _ => return None,
        },
    })
}

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

fn lasting(headers: &HeaderMap) -> HeaderMap {
    // As bytes, because a value need not be ASCII.
    let named: Vec<_> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    let mut lasting = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let is_named = named
            .iter()
            .any(|n| n.eq_ignore_ascii_case(name.as_str().as_bytes()));
        if !is_named && !FLEETING.contains(&name.as_str()) {
            lasting.append(name.clone(), value.clone());
        }
    }
    lasting
}

const FLEETING: [&str; 13] = [
    "connection",
    "content-length",
    "date",
    "idempotent-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "server-timing",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Omits the contents of the response.
impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredResponse")
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("body", &self.body.as_ref().map(Bytes::len))
            .finish_non_exhaustive()
    }
}

/// Identifies the response of a request in the store; in the extensions of the request.
///
/// For handlers that store their response in the transaction of its effect, so that both commit together.
/// When the layer stores the response afterwards, the id of the execution shows that it is the same one,
/// and nothing changes. After a rollback, the layer stores it.
#[cfg_attr(
    feature = "sqlite",
    doc = r#"
# Examples

```
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use polylock_tower::idempotency::{PendingResponse, Put, SqlResponses};
use sqlx::SqlitePool;

# type Body = Full<Bytes>;
# type BoxError = Box<dyn std::error::Error + Send + Sync>;
#
async fn pay(
    request: Request<Body>,
    responses: SqlResponses,
    db: SqlitePool,
) -> Result<Response<Body>, BoxError> {
    let pending = request.extensions().get::<PendingResponse>().ok_or("no IdempotencyLayer")?;
    let response = Response::new(Bytes::from("paid"));
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("UPDATE account SET balance = balance - 100").execute(&mut *tx).await?;
    match responses.put_in(&mut *tx, pending, &response).await? {
        Put::Stored => tx.commit().await?,
        _ => tx.rollback().await?, // a response is stored already, with its effect
    }
    Ok(response.map(Body::new))
}
#
# #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
# use std::sync::Arc;
# use polylock_tower::idempotency::{IdempotencyLayer, KeyScope};
# use tower::{Layer as _, ServiceExt as _};
# let directory = tempfile::tempdir()?;
# let url = format!("sqlite:{}", directory.path().join("shop.db").display());
# let responses = SqlResponses::connect(&url).await?;
# let db = SqlitePool::connect(&url).await?;
# let account = "CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (100)";
# sqlx::raw_sql(account).execute(&db).await?;
# let locks = Arc::new(polylock_core::memory::Memory::new());
# let payments = polylock_tower::Locker::builder(locks, "payments").build()?;
# let layer = IdempotencyLayer::new(payments, Arc::new(responses.clone()), KeyScope::shared())?;
# let store = (responses, db.clone());
# let service = layer.layer(tower::service_fn(move |request| {
#     pay(request, store.0.clone(), store.1.clone())
# }));
# for replayed in [false, true] {
#     let request = Request::post("/pay").header("idempotency-key", "1").body(Body::default())?;
#     let response = service.clone().oneshot(request).await?;
#     assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
# }
# let left: i64 = sqlx::query_scalar("SELECT balance FROM account").fetch_one(&db).await?;
# assert_eq!(left, 0);
# Ok(()) }
```
"#
)]
#[derive(Clone)]
#[non_exhaustive]
pub struct PendingResponse {
    /// The key of the response.
    pub key: LockKey,
    /// The token of the lock; `None` if the backend has none, or the request is unprotected.
    pub fencing_token: Option<FencingToken>,
    /// How long the response is stored.
    pub retention: Duration,
    pub(super) fingerprint: [u8; 32],
    /// Unique for each execution of the handler. A fencing token is not enough: two lock services can give
    /// the same one, and some give none.
    pub(super) execution_id: u128,
}

impl PendingResponse {
    /// What to store of a response.
    #[must_use]
    pub fn stored(&self, response: &Response<Bytes>) -> StoredResponse {
        let response = response.clone().map(Some);
        StoredResponse::new(self.execution_id, self.fingerprint, &response)
    }
}

/// Omits the fingerprint, which reveals information about the body.
impl fmt::Debug for PendingResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingResponse")
            .field("key", &self.key)
            .field("fencing_token", &self.fencing_token)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

pub(super) fn random_id() -> u128 {
    let mut bytes = [0; 16];
    OsEntropy::default().fill(&mut bytes);
    u128::from_be_bytes(bytes)
}

/// The SHA-256 of method, path, query and body: requests with one key are the same if their hashes are.
pub(super) fn fingerprint(parts: &Parts, body: &[u8]) -> [u8; 32] {
    let method = parts.method.as_str();
    let target = parts.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let mut hash = Sha256::new();
    // The lengths keep the boundaries between the parts unambiguous.
    for part in [method.as_bytes(), target.as_bytes(), body] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_back_without_fields_of_the_connection_and_cookies() {
        let latin = HeaderValue::from_bytes(b"caf\xe9: \xff").expect("a value");
        let response = Response::builder()
            .status(201)
            .header("location", "/payments/1")
            .header("x-note", latin)
            .header("x-empty", "")
            .header("vary", "a")
            .header("vary", "b")
            .header("connection", "close, X-Hop")
            .header(
                "connection",
                HeaderValue::from_bytes(b"caf\xe9 , X-Latin").expect("a value"),
            )
            .header("x-hop", "1")
            .header("x-latin", "1")
            .header("transfer-encoding", "chunked")
            .header("content-length", "3")
            .header("date", "then")
            .header("set-cookie", "session=1")
            .header("server-timing", "lock;dur=12.3");
        let response = response.body(Some(Bytes::from_static(b"\0paid\n")));
        let stored = StoredResponse::new(7, ANY, &response.expect("a response"));
        let back = StoredResponse::from_bytes(stored.to_bytes());
        assert_eq!(back.expect("it can be read"), stored);
        let replayed = stored.replay().expect("it has a body");
        let (head, body) = replayed.into_parts();
        let fields: Vec<_> = head.headers.iter().map(|(name, _)| name.as_str()).collect();
        let expected = ["location", "x-note", "x-empty", "vary", "vary"];
        assert_eq!(fields, [&expected[..], &["idempotent-replayed"]].concat());
        assert_eq!((head.status.as_u16(), &body[..]), (201, &b"\0paid\n"[..]));
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        let stored = |status: u16, fields: &[u8], rest: &[u8]| {
            let length = fields.len() as u64;
            let head = [&status.to_be_bytes()[..], &length.to_be_bytes()].concat();
            StoredResponse::from_bytes([&[7; 48], &head[..], fields, rest].concat())
        };
        assert!(stored(200, b"a:b\n", b"\x01").is_ok() && stored(200, b"", b"\0").is_ok());
        for (status, fields, rest) in [
            (1, &b""[..], &b"\0"[..]),
            (200, b"x", b"\0"),
            (200, b"a b:c", b"\0"),
            (200, b"a:\x01", b"\0"),
            (200, b"", b""),
            (200, b"", b"\0x"),
            (200, b"", b"\x02x"),
        ] {
            let read = stored(status, fields, rest);
            assert!(read.is_err(), "{status} {fields:?} {rest:?}");
        }
        assert!(StoredResponse::from_bytes(&[0; 50][..]).is_err());
        let many: String = (0..40_000).map(|n| format!("x{n}:\n")).collect();
        assert!(stored(200, many.as_bytes(), b"\0").is_err());
    }

    const ANY: [u8; 32] = [7; 32];

    #[test]
    fn every_part_counts_and_the_host_does_not() {
        let of = |method: &str, uri: &str, body: &[u8]| {
            let request = http::Request::builder().method(method).uri(uri).body(());
            let (parts, ()) = request.expect("a request").into_parts();
            fingerprint(&parts, body)
        };
        let all = [
            of("POST", "/pay", b"1"),
            of("PATCH", "/pay", b"1"),
            of("POST", "/pay/", b"1"),
            of("POST", "/pay?a", b"1"),
            of("POST", "/pay", b"2"),
            of("POST", "/pay1", b""),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "request {at}");
        }
        assert_eq!(all[0], of("POST", "http://a/pay", b"1"));
    }
}
