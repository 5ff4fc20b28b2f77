use std::panic::Location;
use std::time::Duration;

/// Longest time that a test waits for what has to happen, virtual or real.
const DEADLINE: Duration = Duration::from_secs(100);

/// What a test waits for.
pub(crate) trait InTime: IntoFuture + Sized {
    /// What this returns; fails the test with `what` if that does not come.
    #[track_caller]
    fn in_time(self, what: &str) -> impl Future<Output = Self::Output> {
        let (caller, happens) = (Location::caller(), self.into_future());
        async move {
            let outcome = tokio::time::timeout(DEADLINE, happens).await;
            outcome.unwrap_or_else(|_| panic!("{what} did not come within {DEADLINE:?} ({caller})"))
        }
    }

    /// The answer to a request.
    #[track_caller]
    fn answered(self) -> impl Future<Output = Self::Output> {
        self.in_time("the answer")
    }
}

impl<F: IntoFuture> InTime for F {}

/// Waits until `condition` is true.
#[track_caller]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let (caller, deadline) = (Location::caller(), std::time::Instant::now() + SOON);
    async move {
        while !condition() {
            let is_late = std::time::Instant::now() > deadline;
            assert!(!is_late, "never within {SOON:?}: {what} ({caller})");
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Longest time for what does not depend on any time that is configured.
pub(crate) const SOON: Duration = Duration::from_secs(20);
