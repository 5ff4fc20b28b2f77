use std::pin::Pin;
use std::sync::Arc;

use axum_core::extract::FromRequestParts;
use axum_core::response::IntoResponse as _;
use http::request::Parts;
use http_body_util::BodyExt as _;

use super::fields::too_long;
use super::{KeyError, Keys, MAX_NAME_LEN};

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
