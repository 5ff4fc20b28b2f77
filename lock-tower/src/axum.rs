//! What handlers of axum take and return.

use axum_core::extract::{FromRef, FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::held::{HeldLock, NotHeld};
use crate::locker::Locker;
use crate::rejection::{ProblemDetails, Rejection, RejectionResponder, RequestInfo};

/// Refuses a handler that wants a lock on a route that takes none: 500, because a handler that runs
/// unprotected by mistake is worse than one that does not run.
impl<S: Send + Sync> FromRequestParts<S> for HeldLock {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let held = parts.extensions.get::<Self>().cloned();
        held.ok_or_else(|| {
            let path = parts.uri.path();
            tracing::error!(path, "{NO_LAYER}");
            (StatusCode::INTERNAL_SERVER_ERROR, NO_LAYER)
        })
    }
}

const NO_LAYER: &str =
    "the handler takes a HeldLock, and no KeyLockLayer has locked anything for this request";

/// For handlers of requests that take a lock and of those that pass.
impl<S: Send + Sync> OptionalFromRequestParts<S> for HeldLock {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}

/// From the state of the application.
impl<S> FromRequestParts<S> for Locker
where
    S: Send + Sync,
    Self: FromRef<S>,
{
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::from_ref(state))
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let answer = match self.response() {
            Some(response) => response.clone(),
            None => ProblemDetails::new().respond(&RequestInfo::nothing(), &self),
        };
        answer.map(Into::into)
    }
}

/// For a handler that looks at its lock: the lock is lost.
impl IntoResponse for NotHeld {
    fn into_response(self) -> Response {
        Rejection::from(self).into_response()
    }
}
