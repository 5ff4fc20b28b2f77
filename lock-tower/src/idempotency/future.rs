use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;

use super::IdempotencyBody;

/// The future of an [`Idempotency`](super::Idempotency).
///
/// # Cancel safety
///
/// As for [`IdempotencyLayer`](super::IdempotencyLayer).
#[must_use = "futures do nothing unless they are polled"]
pub struct IdempotencyFuture<B, E>(Pin<Box<dyn Future<Output = Answered<B, E>> + Send>>);

type Answered<B, E> = Result<Response<IdempotencyBody<B>>, E>;

impl<B, E> IdempotencyFuture<B, E> {
    pub(super) fn new(work: impl Future<Output = Answered<B, E>> + Send + 'static) -> Self {
        Self(Box::pin(work))
    }
}

impl<B, E> Future for IdempotencyFuture<B, E> {
    type Output = Answered<B, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<B, E> fmt::Debug for IdempotencyFuture<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyFuture").finish_non_exhaustive()
    }
}
