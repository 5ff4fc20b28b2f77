use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that may move from one runtime to another.
///
/// An acquisition can pass from a task that gives up to another one, on another runtime; the timers
/// of tokio stay with the runtime that they were made on, and panic when it is gone.
pub(crate) struct Nap {
    until: Instant,
    timer: Option<(Id, Pin<Box<Sleep>>)>,
}

impl Nap {
    pub(crate) fn until(until: Instant) -> Self {
        Self { until, timer: None }
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (here, until) = (Handle::current().id(), self.until);
        if self.timer.as_ref().is_some_and(|(id, _)| *id != here) {
            self.timer = None;
        }
        let (_, timer) = self
            .timer
            .get_or_insert_with(|| (here, Box::pin(sleep_until(until))));
        timer.as_mut().poll(cx)
    }
}

/// What `work` comes to, or `None` if that is later than `deadline`.
pub(crate) async fn before<W: Future>(deadline: Instant, work: W) -> Option<W::Output> {
    let (mut work, mut late) = (pin!(work), pin!(Nap::until(deadline)));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => late.as_mut().poll(cx).map(|()| None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn a_nap_survives_the_runtime_that_it_began_on() {
        let (first, second) = (runtime(), runtime());
        let mut nap = Box::pin(Nap::until(Instant::now() + Duration::from_millis(20)));
        first.block_on(poll_fn(|cx| {
            assert!(nap.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        }));
        drop(first);
        second.block_on(nap);
    }

    #[test]
    fn work_is_bounded() {
        runtime().block_on(async {
            let soon = Instant::now() + Duration::from_millis(5);
            assert_eq!(before(soon, std::future::pending::<()>()).await, None);
            assert_eq!(before(soon, async { 1 }).await, Some(1));
        });
    }
}
