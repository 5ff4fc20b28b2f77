//! What the services of all layers share.

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::Pin;

use tower_service::Service;
use tracing::Instrument as _;

/// The future of every service of this crate.
///
/// # Cancel safety
///
/// As for the layer of the service.
pub type ResponseFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Makes the inner service ready and calls it.
pub(crate) async fn call<S: Service<R>, R>(
    mut service: S,
    request: R,
) -> Result<S::Response, S::Error> {
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}

/// Runs `work` to completion, even if the caller is dropped.
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
