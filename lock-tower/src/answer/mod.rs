//! The response to a client whose request did not get its lock.

mod asked;
mod grpc;
mod grpc_timeout;
mod observer;
mod problem;
mod rejection;

use bytes::Bytes;
use http::Response;

pub(crate) use self::grpc_timeout::grpc_timeout;

pub use self::asked::Asked;
pub use self::observer::{RefusedRequest, RejectionObserver};
pub use self::problem::{Format, Problem};
pub use self::rejection::{Reason, Rejection};

/// Makes an answer of a rejection.
///
/// [`Problem`] is the one of a layer that is given no other. Closures
/// `Fn(&Asked, &Rejection) -> Response<Bytes>` are answers too. Must not block.
pub trait Answer: Send + Sync + 'static {
    /// Answers the request.
    fn answer(&self, asked: &Asked, rejection: &Rejection) -> Response<Bytes>;
}

impl<F> Answer for F
where
    F: Fn(&Asked, &Rejection) -> Response<Bytes> + Send + Sync + 'static,
{
    fn answer(&self, asked: &Asked, rejection: &Rejection) -> Response<Bytes> {
        self(asked, rejection)
    }
}
