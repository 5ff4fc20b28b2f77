//! Extractors and responses for axum handlers, and keys that axum extractors read.

use std::pin::Pin;
use std::sync::Arc;

use axum_core::extract::{FromRef, FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use http_body_util::BodyExt as _;

use crate::held_lock::{HeldLock, NotHeld};
use crate::keys::{KeyError, Keys, MAX_NAME_LEN};
use crate::locker::Locker;
use crate::log_limit::PROCESS_LOG;
use crate::rejection::{ProblemDetails, Rejection, RejectionResponder, RequestInfo};

/// Rejects with 500 if no layer has set a lock for the request: a handler that runs unprotected by mistake is
/// worse than one that does not run.
impl<S: Send + Sync> FromRequestParts<S> for HeldLock {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let held = parts.extensions.get::<Self>().cloned();
        held.ok_or_else(|| {
            if PROCESS_LOG.is_due(NO_LAYER) {
                let path = parts.uri.path();
                tracing::error!(path, "{NO_LAYER}");
            }
            (StatusCode::INTERNAL_SERVER_ERROR, NO_LAYER)
        })
    }
}

const NO_LAYER: &str = "the handler takes a HeldLock, and its innermost KeyLockLayer, if any, has locked \
                        nothing for this request";

/// For handlers of both locked requests and requests that pass without a lock.
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
            None => ProblemDetails::new().respond(&RequestInfo::default(), &self),
        };
        answer.map(Into::into)
    }
}

/// For handlers that check their lock: 503 if it is lost or was never held, 500 if the handler has
/// released it.
impl IntoResponse for NotHeld {
    fn into_response(self) -> Response {
        Rejection::from(self).into_response()
    }
}

/// Reads the keys of a request by an extractor of axum.
pub(crate) type ReadKeys = dyn for<'a> Fn(&'a mut Parts) -> ReadingKeys<'a> + Send + Sync;

type ReadingKeys<'a> = Pin<Box<dyn Future<Output = Result<Keys, KeyError>> + Send + 'a>>;

pub(crate) fn read_keys<E, F>(keys: F) -> Arc<ReadKeys>
where
    E: FromRequestParts<()> + Send + 'static,
    F: Fn(E) -> Keys + Send + Sync + 'static,
{
    let keys = Arc::new(keys);
    Arc::new(move |parts| {
        let keys = Arc::clone(&keys);
        Box::pin(async move {
            let extracted = E::from_request_parts(parts, &()).await;
            match extracted.map_err(|refused| refused.into_response()) {
                Ok(extracted) => bounded(keys(extracted)),
                Err(response) => Err(answer(response).await),
            }
        })
    })
}

/// Checks the lengths, as the extractors of this crate do.
fn bounded(keys: Keys) -> Result<Keys, KeyError> {
    let names = match &keys {
        Keys::Many(names) => names.as_slice(),
        Keys::One(name) => std::slice::from_ref(name),
        Keys::Skip => &[],
    };
    match names.iter().any(|name| name.len() > MAX_NAME_LEN) {
        true => {
            let what = format!("the name of the lock has more than {MAX_NAME_LEN} bytes");
            Err(KeyError::Invalid(what))
        }
        false => Ok(keys),
    }
}

/// Reads the response of an extractor, which is short and ready at once.
async fn answer(response: Response) -> KeyError {
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => {
            KeyError::Response(Box::new(http::Response::from_parts(parts, body.to_bytes())))
        }
        Err(_) => KeyError::Invalid("the request does not name its lock".to_owned()),
    }
}
