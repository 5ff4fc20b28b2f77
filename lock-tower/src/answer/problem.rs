use bytes::Bytes;
use http::{Response, StatusCode};

use super::{Answer, Asked, Reason, Rejection};

/// Answers with a problem document (RFC 9457), and calls of gRPC with a status.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Problem {}

impl Problem {
    /// The statuses of the table above.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Answer for Problem {
    fn answer(&self, _asked: &Asked, rejection: &Rejection) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = match rejection.reason() {
            Reason::Busy | Reason::TimedOut => StatusCode::CONFLICT,
            Reason::InvalidKey => StatusCode::BAD_REQUEST,
            Reason::Lost | Reason::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Reason::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
            Reason::QueueFull => StatusCode::TOO_MANY_REQUESTS,
        };
        response
    }
}
