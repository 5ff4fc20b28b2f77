use std::fmt;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::{Fingerprint, RunId, StoreError};

/// A stored response, with the fingerprint of its request.
///
/// Kept are the status, the body and the fields of the head, except those that concern one
/// connection (`Connection` and what it names, `Keep-Alive`, `Proxy-Authenticate`,
/// `Proxy-Connection`, `TE`, `Trailer`, `Transfer-Encoding`, `Upgrade`), those that the server adds
/// to each response (`Content-Length`, `Date`), and `Set-Cookie`: cookies open sessions, and what
/// lies in a store for a day should not. Trailers are not kept.
#[derive(Clone, Eq, PartialEq)]
pub struct StoredResponse {
    fingerprint: Fingerprint,
    run: RunId,
    status: StatusCode,
    headers: HeaderMap,
    body: Option<Bytes>,
}

impl StoredResponse {
    /// Keeps a response to the request with this fingerprint, as made by a run of its own; without a
    /// body, that it was too large, or broke off.
    #[must_use]
    pub fn new(fingerprint: Fingerprint, response: &Response<Option<Bytes>>) -> Self {
        Self {
            fingerprint,
            run: RunId::random(),
            status: response.status(),
            headers: lasting(response.headers()),
            body: response.body().clone(),
        }
    }

    pub(super) fn of_run(mut self, run: RunId) -> Self {
        self.run = run;
        self
    }

    /// Rebuilds one of what a store has kept of it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if there is no such status, or `fields` does not come from
    /// [`fields`](Self::fields).
    pub fn from_stored(
        fingerprint: Fingerprint,
        run: RunId,
        status: u16,
        fields: &[u8],
        body: Option<Bytes>,
    ) -> Result<Self, StoreError> {
        let broken = || StoreError::new("a stored response cannot be read");
        let status = StatusCode::from_u16(status).map_err(|e| broken().with_source(e))?;
        let mut headers = HeaderMap::new();
        for line in fields
            .split(|b| *b == b'\n')
            .filter(|line| !line.is_empty())
        {
            let colon = line.iter().position(|b| *b == b':').ok_or_else(broken)?;
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            let name = HeaderName::from_bytes(name).map_err(|e| broken().with_source(e))?;
            let value = HeaderValue::from_bytes(value).map_err(|e| broken().with_source(e))?;
            headers.append(name, value);
        }
        Ok(Self {
            fingerprint,
            run,
            status,
            headers,
            body,
        })
    }

    /// Which request it answers.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Its origin: two with the same one are the same.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The fields of the head, one `name:value` a line. Values may be other bytes than UTF-8, and
    /// contain no line feed.
    #[must_use]
    pub fn fields(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        for (name, value) in &self.headers {
            fields.extend_from_slice(name.as_str().as_bytes());
            fields.push(b':');
            fields.extend_from_slice(value.as_bytes());
            fields.push(b'\n');
        }
        fields
    }

    /// The body; `None` if it was too large to be kept, or broke off.
    #[must_use]
    pub fn body(&self) -> Option<&Bytes> {
        self.body.as_ref()
    }

    /// About how many bytes it takes.
    pub(super) fn len(&self) -> usize {
        let field = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
        let fields: usize = self.headers.iter().map(field).sum();
        fields + self.body.as_ref().map_or(0, Bytes::len) + size_of::<Self>()
    }

    /// The response for another request of the same client; `None` if the body was not kept.
    pub(super) fn replay(self) -> Option<Response<Bytes>> {
        let mut response = Response::new(self.body?);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        let replayed = HeaderValue::from_static("true");
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, replayed);
        Some(response)
    }
}

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

fn lasting(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<_> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .map(str::trim)
        .collect();
    let mut lasting = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let is_named = named.iter().any(|n| n.eq_ignore_ascii_case(name.as_str()));
        if !is_named && !FLEETING.contains(&name.as_str()) {
            lasting.append(name.clone(), value.clone());
        }
    }
    lasting
}

const FLEETING: [&str; 12] = [
    "connection",
    "content-length",
    "date",
    "idempotent-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Without what the response says.
impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredResponse")
            .field("fingerprint", &self.fingerprint)
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("body", &self.body.as_ref().map(Bytes::len))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_comes_back() {
        let response = Response::builder()
            .status(201)
            .header("location", "/payments/1")
            .header(
                "x-note",
                HeaderValue::from_bytes(b"caf\xe9: \xff").expect("a value"),
            )
            .header("x-empty", "")
            .header("vary", "a")
            .header("vary", "b")
            .body(Some(Bytes::from_static(b"\0paid\n")));
        let stored = StoredResponse::new(ANY, &response.expect("a response"));
        let fields = stored.fields();
        let back =
            StoredResponse::from_stored(ANY, stored.run(), 201, &fields, stored.body().cloned());
        assert_eq!(back.expect("it can be read"), stored);
        let replayed = stored.replay().expect("it has a body");
        assert_eq!(replayed.headers().get_all("vary").iter().count(), 2);
        assert_eq!(replayed.headers()["idempotent-replayed"], "true");
    }

    #[test]
    fn fields_of_the_connection_and_cookies_are_left_out() {
        let response = Response::builder()
            .header("connection", "close, X-Hop")
            .header("x-hop", "1")
            .header("transfer-encoding", "chunked")
            .header("content-length", "3")
            .header("date", "then")
            .header("set-cookie", "session=1")
            .header("x-end", "2")
            .body(Some(Bytes::new()));
        let stored = StoredResponse::new(ANY, &response.expect("a response"));
        assert_eq!(stored.fields(), b"x-end:2\n");
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        for (status, fields) in [
            (1, &b""[..]),
            (200, b"x"),
            (200, b"a b:c"),
            (200, b"a:\x01"),
        ] {
            let read =
                StoredResponse::from_stored(ANY, RunId::from_bytes([7; 16]), status, fields, None);
            assert!(read.is_err(), "{status} {fields:?}");
        }
    }

    #[test]
    fn debug_shows_no_content() {
        let response = Response::builder()
            .header("x-card", "4111")
            .body(Some(Bytes::from_static(b"secret")));
        let stored = StoredResponse::new(ANY, &response.expect("a response"));
        let text = format!("{stored:?}");
        assert!(!text.contains("4111") && !text.contains("secret"), "{text}");
    }

    const ANY: Fingerprint = Fingerprint::from_bytes([7; 32]);
}
