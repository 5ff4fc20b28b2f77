use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use crate::rejection::{Rejection, problem};

/// Why a request is answered without its handler.
#[derive(Debug)]
pub(super) enum IdempotencyRefusal {
    Lock(Rejection),
    Request(IdempotencyReason),
}

impl From<Rejection> for IdempotencyRefusal {
    fn from(rejection: Rejection) -> Self {
        Self::Lock(rejection)
    }
}

impl From<IdempotencyReason> for IdempotencyRefusal {
    fn from(reason: IdempotencyReason) -> Self {
        Self::Request(reason)
    }
}

/// Why a request is refused, where the lock is not the cause.
#[derive(Clone, Debug)]
pub(super) enum IdempotencyReason {
    BodyTooLarge,
    BodyUnreadable,
    KeyInvalid(String),
    KeyMissing,
    KeyReused,
    ResponseNotKept,
    StoreUnavailable,
}

impl IdempotencyReason {
    /// The name that observers hear, and the answer, which no responder changes.
    pub(super) fn answer(&self) -> (&'static str, Response<Bytes>) {
        let (status, name, title, detail) = match self {
            Self::BodyTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "idempotency-body-too-large",
                "the request is too large",
                "the body is larger than requests with a key may be",
            ),
            Self::BodyUnreadable => (
                StatusCode::BAD_REQUEST,
                "idempotency-body-unreadable",
                "the body of the request did not arrive",
                "the connection ended before the body did",
            ),
            Self::KeyInvalid(detail) => (
                StatusCode::BAD_REQUEST,
                "idempotency-key-invalid",
                "the Idempotency-Key is invalid",
                detail.as_str(),
            ),
            Self::KeyMissing => (
                StatusCode::BAD_REQUEST,
                "idempotency-key-missing",
                "the Idempotency-Key is missing",
                "this operation needs an Idempotency-Key, new for each request",
            ),
            Self::KeyReused => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency-key-reused",
                "the Idempotency-Key is already used",
                "another request has been sent with this Idempotency-Key",
            ),
            Self::ResponseNotKept => (
                StatusCode::CONFLICT,
                "idempotency-response-not-kept",
                "the request has been handled",
                "the request has been handled before, and its response was too large to be kept, or \
                 incomplete",
            ),
            Self::StoreUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "idempotency-store-unavailable",
                "the stored responses are unavailable",
                "it is not known whether the request has been handled before; it was not handled",
            ),
        };
        let is_later = matches!(self, Self::StoreUnavailable);
        let retry_after = is_later.then_some(Duration::from_secs(1));
        (name, problem((status, name, title, detail), retry_after))
    }
}
