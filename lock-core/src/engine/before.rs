use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, sleep_until};

/// The output of `work`, or `None` if it is not ready by `deadline`. For implementors.
///
/// If the whole runtime was blocked, the reply may be unread in a socket: `work` gets a few more
/// turns before it counts as late.
///
/// # Panics
///
/// Outside a tokio runtime with a timer.
///
/// # Cancel safety
///
/// That of `work`.
pub async fn before<W: Future>(deadline: Instant, work: W) -> Option<W::Output> {
    let (mut work, mut late) = (pin!(work), pin!(sleep_until(deadline)));
    let mut turns = TURNS;
    poll_fn(|cx| {
        if let Poll::Ready(output) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if turns == TURNS && late.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if turns == 0 {
            return Poll::Ready(None);
        }
        turns -= 1;
        // Not a plain wake-up: the runtime looks at its sockets before it comes back to this one.
        pin!(tokio::task::yield_now()).poll(cx).map(|()| None)
    })
    .await
}

const TURNS: u32 = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// That a reply in a socket is not late is shown with renewals.
    #[tokio::test]
    async fn work_is_bounded() {
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(before(soon, std::future::pending::<()>()).await, None);
        assert_eq!(before(soon, async { 1 }).await, Some(1));
    }
}
