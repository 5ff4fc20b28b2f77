//! What the services of all layers share.

use std::fmt;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use tower_service::Service;
use tracing::Instrument as _;

/// The future of every service of this crate.
///
/// # Cancel safety
///
/// As for the layer of the service.
#[must_use = "futures do nothing unless they are polled"]
pub struct ResponseFuture<T, E>(Pin<Box<dyn Future<Output = Result<T, E>> + Send>>);

impl<T, E> ResponseFuture<T, E> {
    pub(crate) fn new(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Self {
        Self(Box::pin(work))
    }
}

impl<T, E> Future for ResponseFuture<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        self.0.as_mut().poll(cx)
    }
}

impl<T, E> fmt::Debug for ResponseFuture<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// Makes the inner service ready and calls it.
pub(crate) async fn call<S: Service<R>, R>(
    mut service: S,
    request: R,
) -> Result<S::Response, S::Error> {
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}

/// Runs `work` to its end, also without its caller.
pub(crate) async fn to_completion<T, W>(work: W) -> T
where
    W: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    match tokio::spawn(work.in_current_span()).await {
        Ok(output) => output,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime shuts down and has dropped the work; nothing is left to answer.
            Err(_) => std::future::pending().await,
        },
    }
}
