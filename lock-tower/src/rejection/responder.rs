use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, Uri};
use serde_json::json;

use super::{Reason, Rejection, grpc};

/// Makes the response to a client whose request was rejected.
///
/// [`ProblemDetails`] is the default. Closures
/// `Fn(&RequestInfo, &Rejection) -> Response<Bytes>` are responders too. Must not block.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use http::{Response, StatusCode};
/// use polylock_tower::{Reason, Rejection, RejectionResponder as _, RequestInfo};
///
/// // For `KeyLockLayer::with_responder`:
/// fn locked(request: &RequestInfo, rejection: &Rejection) -> Response<Bytes> {
///     let text = format!("{}: {rejection}", request.uri().path());
///     let mut response = Response::new(Bytes::from(text));
///     *response.status_mut() = StatusCode::LOCKED;
///     response
/// }
///
/// let response = locked.respond(&RequestInfo::default(), &Rejection::new(Reason::Busy));
/// assert_eq!(response.body(), "/: the lock is held");
/// ```
pub trait RejectionResponder: Send + Sync + 'static {
    /// Makes the response.
    fn respond(&self, info: &RequestInfo, rejection: &Rejection) -> Response<Bytes>;
}

impl<F> RejectionResponder for F
where
    F: Fn(&RequestInfo, &Rejection) -> Response<Bytes> + Send + Sync + 'static,
{
    fn respond(&self, info: &RequestInfo, rejection: &Rejection) -> Response<Bytes> {
        self(info, rejection)
    }
}

/// The head of a request, for the response to it while the handler owns the request.
///
/// The example of [`RejectionResponder`] reads it. The default is a request of which nothing is known.
#[derive(Clone, Debug, Default)]
pub struct RequestInfo {
    method: Method,
    uri: Uri,
    /// What a gRPC client reads.
    grpc: Option<&'static str>,
}

impl RequestInfo {
    pub(crate) fn of(parts: &Parts) -> Self {
        let content_type = parts.headers.get(CONTENT_TYPE);
        Self {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            grpc: content_type.and_then(grpc::content_type),
        }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The target, as this layer has seen it.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Whether the request is a call of gRPC or gRPC-Web, by its content type.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.grpc.is_some()
    }
}

/// Answers with a problem document (RFC 9457), and calls of gRPC with a status.
///
/// | [`Reason`] | status | `Retry-After` | gRPC | `RetryInfo` |
/// |---|---|---|---|---|
/// | `Busy` | 409 | yes | `ABORTED` | yes |
/// | `InvalidKey` | 400 | no | `INVALID_ARGUMENT` | no |
/// | `Lost` | 503 | no: the effect is unknown | `ABORTED` | no |
/// | `Misconfigured` | 500 | no | `INTERNAL` | no |
/// | `QueueFull` | 429 | yes | `RESOURCE_EXHAUSTED` | yes |
/// | `TimedOut` | 409 | yes | `ABORTED` | yes |
/// | `Unavailable` | 503 | yes | `UNAVAILABLE` | yes |
///
/// [`idempotency`](crate::idempotency) has the statuses of requests with an `Idempotency-Key`.
///
/// A busy key is a conflict, not a 503: proxies treat a server that answers 503 as unhealthy, so one hot
/// key would cost the others an instance. `Retry-After` has whole seconds, rounded up.
///
/// ```json
/// {
///   "type": "urn:polylock:lock-busy",
///   "title": "the lock is held",
///   "status": 409,
///   "detail": "another request with the same key holds it; if its server has failed, it is free when the lease ends",
///   "reason": "lock-busy"
/// }
/// ```
///
/// Responses contain neither the key nor the error of the lock service, and `cache-control: no-store` keeps
/// them out of caches.
///
/// # gRPC
///
/// A request with the content type `application/grpc` or `application/grpc-web`, whatever its
/// suffix, is answered with HTTP 200, `grpc-status` and `grpc-message` in the head, and no body, in
/// every [`Format`]; clients of gRPC-Web read such a status as well. With the feature `tonic` the
/// details are there too: `RetryInfo` as in the table, with all digits of
/// [`Rejection::retry_after`], and `ErrorInfo` with the reason as in `LOCK_BUSY` and the domain
/// `polylock`.
///
/// # Examples
///
/// ```
/// use http::StatusCode;
/// use polylock_tower::{Format, ProblemDetails, Reason, Rejection, RejectionResponder, RequestInfo};
///
/// let locked = ProblemDetails::new()
///     .with_type_base("https://errors.example/")
///     .with_busy_status(StatusCode::LOCKED);
/// let busy = Rejection::new(Reason::Busy);
/// let response = locked.respond(&RequestInfo::default(), &busy);
/// assert_eq!(response.status(), 423);
///
/// let text = locked.with_format(Format::Text).respond(&RequestInfo::default(), &busy);
/// assert!(text.body().starts_with(b"the lock is held: "));
/// ```
#[derive(Clone, Debug)]
pub struct ProblemDetails {
    type_base: Cow<'static, str>,
    busy_status: StatusCode,
    format: Format,
}

/// The format of a response body.
///
/// The example of [`ProblemDetails`] sets it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Format {
    /// No body; only the status and the headers.
    Empty,
    /// `application/problem+json`. The default.
    #[default]
    ProblemJson,
    /// A line of `text/plain`.
    Text,
}

impl ProblemDetails {
    /// Creates the responder of the table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the prefix of the [name](Reason::as_str) in the member `type`. Default: `urn:polylock:`, which
    /// identifies a kind of problem and is not a link.
    #[must_use]
    pub fn with_type_base(mut self, base: impl Into<Cow<'static, str>>) -> Self {
        self.type_base = base.into();
        self
    }

    /// Sets the status where another client holds the lock, for [`Reason::Busy`] and
    /// [`Reason::TimedOut`]. Default: 409. Some clients expect 423 or 429, and 429 is what most
    /// libraries retry by default.
    #[must_use]
    pub fn with_busy_status(mut self, status: StatusCode) -> Self {
        self.busy_status = status;
        self
    }

    /// Sets the format of the body. Default: [`Format::ProblemJson`].
    #[must_use]
    pub fn with_format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    pub(crate) fn status(&self, reason: Reason) -> StatusCode {
        match reason {
            Reason::Busy | Reason::TimedOut => self.busy_status,
            Reason::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Reason::BodyUnreadable
            | Reason::IdempotencyKeyInvalid
            | Reason::IdempotencyKeyMissing
            | Reason::InvalidKey => StatusCode::BAD_REQUEST,
            Reason::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Reason::Lost | Reason::StoreUnavailable | Reason::Unavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Reason::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
            Reason::QueueFull => StatusCode::TOO_MANY_REQUESTS,
            Reason::ResponseNotKept => StatusCode::CONFLICT,
        }
    }
}

impl Default for ProblemDetails {
    fn default() -> Self {
        Self {
            type_base: "urn:polylock:".into(),
            busy_status: StatusCode::CONFLICT,
            format: Format::default(),
        }
    }
}

impl RejectionResponder for ProblemDetails {
    fn respond(&self, info: &RequestInfo, rejection: &Rejection) -> Response<Bytes> {
        if let Some(content_type) = info.grpc {
            return grpc::answer(content_type, rejection);
        }
        let (reason, title, usual_detail) = rejection.reason().texts();
        let detail = rejection.detail().unwrap_or(usual_detail);
        let status = self.status(rejection.reason());
        let body = match self.format {
            Format::Empty => None,
            Format::ProblemJson => {
                let kind = format!("{}{reason}", self.type_base);
                let status = status.as_u16();
                let document = json!({
                    "type": kind,
                    "title": title,
                    "status": status,
                    "detail": detail,
                    "reason": reason,
                });
                Some(("application/problem+json", document.to_string()))
            }
            Format::Text => Some(("text/plain; charset=utf-8", format!("{title}: {detail}\n"))),
        };
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = rejection.retry_after() {
            headers.insert(RETRY_AFTER, whole_seconds(after).into());
        }
        if let Some((content_type, body)) = body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            *response.body_mut() = body.into();
        }
        response
    }
}

/// Rounded up, and at least one: a client with a delay of zero would retry in a loop.
fn whole_seconds(after: Duration) -> u64 {
    let started = u64::from(after.subsec_nanos() > 0);
    after.as_secs().saturating_add(started).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_never_zero() {
        let cases = [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_secs(1), 1),
            (Duration::from_millis(1001), 2),
            (Duration::from_secs(60), 60),
            (Duration::MAX, u64::MAX),
        ];
        for (after, seconds) in cases {
            assert_eq!(whole_seconds(after), seconds, "retry after {after:?}");
        }
    }
}
