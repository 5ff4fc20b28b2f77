//! A panic of a backend, an observer or a waker ends the call that it happens in and nothing else.
//! The panic hook has reported it by the time it is caught.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

/// Calls `act`; `None` if it panics.
pub(crate) fn catch_panic<T>(act: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

/// Awaits `work`; `None` if it panics.
pub(crate) async fn catch_panic_async<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    std::future::poll_fn(|cx| match catch_panic(|| work.as_mut().poll(cx)) {
        Some(poll) => poll.map(Some),
        None => Poll::Ready(None),
    })
    .await
}
