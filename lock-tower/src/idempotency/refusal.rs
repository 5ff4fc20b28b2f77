use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

/// Why a request is answered without its handler, where the lock is not the cause.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    BodyTooLarge,
    BodyUnreadable,
    KeyInvalid(String),
    KeyMissing,
    KeyReused,
    ResponseNotKept,
    StoreUnavailable,
}

impl Refusal {
    /// A problem document (RFC 9457).
    pub(super) fn answer(&self) -> Response<Bytes> {
        let (status, name, title) = self.words();
        let problem = serde_json::json!({
            "type": format!("{TYPES}{name}"),
            "title": title,
            "status": status.as_u16(),
            "detail": self.detail(),
            "reason": name,
        });
        let mut response = Response::new(Bytes::from(problem.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Self::StoreUnavailable = self {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// The name that clients see.
    pub(super) fn name(&self) -> &'static str {
        self.words().1
    }

    fn words(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::BodyTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "idempotency-body-too-large",
                "the request is too large",
            ),
            Self::BodyUnreadable => (
                StatusCode::BAD_REQUEST,
                "idempotency-body-unreadable",
                "the body of the request did not arrive",
            ),
            Self::KeyInvalid(_) => (
                StatusCode::BAD_REQUEST,
                "idempotency-key-invalid",
                "the Idempotency-Key is invalid",
            ),
            Self::KeyMissing => (
                StatusCode::BAD_REQUEST,
                "idempotency-key-missing",
                "the Idempotency-Key is missing",
            ),
            Self::KeyReused => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency-key-reused",
                "the Idempotency-Key is already used",
            ),
            Self::ResponseNotKept => (
                StatusCode::CONFLICT,
                "idempotency-response-not-kept",
                "the request has been handled",
            ),
            Self::StoreUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "idempotency-store-unavailable",
                "the stored responses are unavailable",
            ),
        }
    }

    fn detail(&self) -> &str {
        match self {
            Self::BodyTooLarge => "the body is larger than requests with a key may be",
            Self::BodyUnreadable => "the connection ended before the body did",
            Self::KeyInvalid(detail) => detail,
            Self::KeyMissing => "this operation needs an Idempotency-Key, new for each request",
            Self::KeyReused => "another request has been sent with this Idempotency-Key",
            Self::ResponseNotKept => {
                "the request has been handled before, and its response was too large to be kept, or \
                 incomplete"
            }
            Self::StoreUnavailable => {
                "it is not known whether the request has been handled before; it was not handled"
            }
        }
    }
}

/// As [`Problem`](crate::Problem) has it.
const TYPES: &str = "urn:polylock:";
const PROBLEM_JSON: &str = "application/problem+json";
