//! What all tests use: waits that have a deadline, requests and what is said to them, a lock service
//! on a clock that may stand still, and a handler that stays inside until the test lets it go.

mod said;
mod scene;
mod stage;

use std::panic::Location;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use tower::{Service, ServiceExt as _};

pub(crate) use self::said::{Rejections, Said, Sent};
pub(crate) use self::scene::{
    Broken, Handler, SECRET, Scene, break_lock, by_path, connect, handler, key_of, patient, post,
    request,
};
pub(crate) use self::stage::{Event, Stage};

/// Longest time that a test waits for what has to happen, virtual or real.
const DEADLINE: Duration = Duration::from_secs(100);
/// Max time for anything that no configured time delays.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// What a test waits for.
pub(crate) trait InTime: IntoFuture + Sized {
    /// The output of this future; fails the test with `what` on a timeout.
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
pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    until_within(SOON, what, condition)
}

/// Waits until `condition` is true, for `time` at most.
#[track_caller]
pub(crate) fn until_within(
    time: Duration,
    what: &str,
    mut condition: impl FnMut() -> bool,
) -> impl Future<Output = ()> {
    let (caller, deadline) = (Location::caller(), std::time::Instant::now() + time);
    async move {
        while !condition() {
            let is_late = std::time::Instant::now() > deadline;
            assert!(!is_late, "never within {time:?}: {what} ({caller})");
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Sends a request, and returns the response before its body is read.
#[track_caller]
pub(crate) fn head<S, A, B>(
    service: &S,
    request: Request<A>,
) -> impl Future<Output = Response<B>> + use<S, A, B>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    S::Error: std::fmt::Debug,
{
    let response = service.clone().oneshot(request).answered();
    async { response.await.expect("the service does not fail") }
}

/// Sends a request, and returns all that is said to it.
#[track_caller]
pub(crate) fn send<S, A, B>(
    service: &S,
    request: Request<A>,
) -> impl Future<Output = Said> + use<S, A, B>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    S::Error: std::fmt::Debug,
    B: Body<Error: std::fmt::Debug>,
{
    let response = head(service, request);
    async { Said::read(response.await).await }
}

/// Sends a request from a task of its own.
pub(crate) fn spawn<S, A, B>(service: &S, request: Request<A>) -> Sent
where
    S: Service<Request<A>, Response = Response<B>, Future: Send> + Clone + Send + 'static,
    S::Error: std::fmt::Debug,
    A: Send + 'static,
    B: Body<Error: std::fmt::Debug, Data: Send> + Send + 'static,
{
    let service = service.clone();
    Sent::new(async move { Said::read(service.oneshot(request).await.expect("no failure")).await })
}

/// Lets the other tasks run until all of them wait.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
