use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use axum_core::extract::FromRequestParts;
use axum_core::response::IntoResponse as _;
use http::request::Parts;
use http_body_util::BodyExt as _;

use super::origin::too_long;
use super::{KeyError, Keys, MAX_NAME_LEN};

/// An extractor of axum that names the locks.
pub(crate) trait FromParts: Send + Sync + 'static {
    fn keys<'a>(
        &'a self,
        parts: &'a mut Parts,
    ) -> Pin<Box<dyn Future<Output = Result<Keys, KeyError>> + Send + 'a>>;
}

pub(crate) fn from_parts<E, F>(keys: F) -> Arc<dyn FromParts>
where
    E: FromRequestParts<()> + Send + 'static,
    F: Fn(E) -> Keys + Send + Sync + 'static,
{
    let extractor = PhantomData;
    Arc::new(Extracted::<E, F> { keys, extractor })
}

struct Extracted<E, F> {
    keys: F,
    extractor: PhantomData<fn() -> E>,
}

impl<E, F> FromParts for Extracted<E, F>
where
    E: FromRequestParts<()> + Send + 'static,
    F: Fn(E) -> Keys + Send + Sync + 'static,
{
    fn keys<'a>(
        &'a self,
        parts: &'a mut Parts,
    ) -> Pin<Box<dyn Future<Output = Result<Keys, KeyError>> + Send + 'a>> {
        Box::pin(async move {
            let extracted = E::from_request_parts(parts, &()).await;
            match extracted.map_err(|refused| refused.into_response()) {
                Ok(extracted) => bounded((self.keys)(extracted)),
                Err(response) => Err(answer(response).await),
            }
        })
    }
}

/// Checks the lengths, as the extractors of this crate do.
fn bounded(keys: Keys) -> Result<Keys, KeyError> {
    let names = match &keys {
        Keys::Many(names) => names.as_slice(),
        Keys::One(name) => std::slice::from_ref(name),
        Keys::Skip => &[],
    };
    match names.iter().any(|name| name.len() > MAX_NAME_LEN) {
        true => Err(too_long(&"the name of the lock")),
        false => Ok(keys),
    }
}

/// The answer of an extractor is short and there at once.
async fn answer(response: axum_core::response::Response) -> KeyError {
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => {
            KeyError::Response(Box::new(http::Response::from_parts(parts, body.to_bytes())))
        }
        Err(_) => KeyError::Invalid("the request does not name its lock".to_owned()),
    }
}
