use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::StatusCode;

/// Hears of requests that are refused because of their lock, for metrics.
///
/// Called where the answer is made, once for each: it must return quickly and not block. A panic is
/// caught and changes nothing for the client.
pub trait RejectionObserver: fmt::Debug + Send + Sync + 'static {
    /// Takes note of a refused request.
    fn refused(&self, refused: &RefusedRequest<'_>);

    /// Takes note of a refusal that may come, so that its counter can start at zero. Called when the
    /// locker is built, for each [`Reason`](crate::Reason) with the status that
    /// [`Problem::new`](crate::Problem::new) gives it. By default it does nothing.
    fn announced(&self, possible: &RefusedRequest<'_>) {
        let _ = possible;
    }
}

/// A request that got an answer of the layer and not of its handler.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct RefusedRequest<'a> {
    /// The class of the locks, which is the namespace of the locker unless set otherwise.
    pub class: &'a str,
    /// Why, as [`Reason::as_str`](crate::Reason::as_str) has it, such as `"lock-busy"`; of requests
    /// with an `Idempotency-Key` also the reasons of their own, such as `"idempotency-key-missing"`.
    pub reason: &'static str,
    /// The status of the answer; 200 for gRPC, which has its own in a header.
    pub status: StatusCode,
}

impl RefusedRequest<'_> {
    pub(crate) fn announce(&self, observer: &dyn RejectionObserver) {
        drop(catch_unwind(AssertUnwindSafe(|| observer.announced(self))));
    }

    pub(crate) fn tell(&self, observer: &dyn RejectionObserver) {
        drop(catch_unwind(AssertUnwindSafe(|| observer.refused(self))));
    }
}
