//! A panic of a backend, an observer or a waker ends the call that it happens in and nothing else.
//! The panic hook has reported it by the time it is caught.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Calls `act`; `None` if it panics.
pub(crate) fn catch_panic<T>(act: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

/// Awaits `work`; `None` if it panics. For implementors.
///
/// # Cancel safety
///
/// That of `work`.
pub async fn catch_panic_async<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    std::future::poll_fn(|cx| match catch_panic(|| work.as_mut().poll(cx)) {
        Some(poll) => poll.map(Some),
        None => Poll::Ready(None),
    })
    .await
}

/// Awaits `work`, and catches a panic of the caller's waker. For implementors.
///
/// For tasks that are woken together: a waker that panics would keep those after it asleep.
///
/// # Cancel safety
///
/// That of `work`.
pub async fn isolated<W: Future>(work: W) -> W::Output {
    let (mut work, mut isolated) = (pin!(work), None::<Arc<IsolatedWaker>>);
    std::future::poll_fn(|cx| {
        let known = isolated.take().filter(|own| own.0.will_wake(cx.waker()));
        let own = known.unwrap_or_else(|| Arc::new(IsolatedWaker(cx.waker().clone())));
        let waker = Waker::from(Arc::clone(&own));
        isolated = Some(own);
        work.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

struct IsolatedWaker(Waker);

impl Wake for IsolatedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _panicked = catch_panic(|| self.0.wake_by_ref());
    }
}
