use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;

use super::body::LockBody;

/// The future of a [`KeyLock`](crate::KeyLock).
///
/// # Cancel safety
///
/// As for [`KeyLockLayer`](crate::KeyLockLayer).
#[must_use = "futures do nothing unless they are polled"]
pub struct ResponseFuture<B, E>(Pin<Box<dyn Future<Output = Answered<B, E>> + Send>>);

type Answered<B, E> = Result<Response<LockBody<B>>, E>;

impl<B, E> ResponseFuture<B, E> {
    pub(super) fn new(work: impl Future<Output = Answered<B, E>> + Send + 'static) -> Self {
        Self(Box::pin(work))
    }
}

impl<B, E> Future for ResponseFuture<B, E> {
    type Output = Answered<B, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<B, E> fmt::Debug for ResponseFuture<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
