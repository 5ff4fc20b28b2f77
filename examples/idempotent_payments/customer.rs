//! Whose request it is.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use lock_tower::KeyError;

/// The owner of the card with the same number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Customer(pub(crate) u32);

/// What a customer sends with each request; a real one cannot be guessed.
pub(crate) fn credentials_of(customer: u32) -> String {
    format!("Bearer secret-of-{customer}")
}

/// Finds out who it is, and goes before everything that asks.
pub(crate) async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let credentials = request.headers().get("authorization");
    let secret = credentials.and_then(|it| it.to_str().ok()?.strip_prefix("Bearer secret-of-"));
    let customer = secret.and_then(|number| number.parse().ok());
    let customer = Customer(customer.ok_or(StatusCode::UNAUTHORIZED)?);
    request.extensions_mut().insert(customer);
    Ok(next.run(request).await)
}

/// Keys are chosen by clients: without a scope two customers with the same key would be one, and
/// whoever guesses a key would get the receipt of somebody else.
pub(crate) fn scope(parts: &Parts) -> Result<String, KeyError> {
    match parts.extensions.get() {
        Some(Customer(number)) => Ok(number.to_string()),
        None => Err(KeyError::Misconfigured(
            "nobody has authenticated".to_owned(),
        )),
    }
}
