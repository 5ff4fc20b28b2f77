//! Extractors that are ready to use: they tell by the head of a request which lock it needs.
//!
//! | extractor | takes the name from |
//! |---|---|
//! | [`Compound`] | several others, such as a tenant and an id |
//! | [`Cookie`] | a cookie |
//! | [`Extension`] | what an earlier layer has found out |
//! | [`Fixed`] | nowhere: one lock for all requests |
//! | [`Header`] | a header |
//! | [`IdempotencyKey`] | the header `Idempotency-Key` |
//! | [`Optional`] | another, and lets pass what names nothing |
//! | [`QueryParam`] | a parameter of the query |
//!
//! With the feature `axum`, [`KeyLockLayer::from_extractor`](crate::KeyLockLayer::from_extractor)
//! takes it from the path, or from whatever else an extractor of axum reads.
//!
//! # Guarantees
//!
//! Two requests have the same lock if and only if they name it by the same bytes: nothing is
//! normalized, cut or replaced, and what a request says twice is refused. What is refused here
//! reaches neither the backend nor the queue.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::Arc;
//!
//! use http::{Request, Response, StatusCode};
//! use lock_core::memory::Memory;
//! use lock_tower::keys::Header;
//! use lock_tower::{HeldLock, KeyLockLayer, Locker};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let accounts = Locker::builder(Arc::new(Memory::new()), "accounts").build()?;
//! let transfer = service_fn(async |request: Request<String>| {
//!     let held = request.extensions().get::<HeldLock>();
//!     let key = held.map(|held| held.key().to_string());
//!     Ok::<_, Infallible>(Response::new(key.unwrap_or_default()))
//! });
//! let service = KeyLockLayer::new(accounts, Header::new("x-account")?).layer(transfer);
//!
//! let request = Request::post("/transfer").header("x-account", "42").body(String::new())?;
//! let served = service.clone().oneshot(request).await?;
//! assert_eq!(served.status(), StatusCode::OK);
//!
//! let request = Request::post("/transfer").body(String::new())?;
//! let refused = service.oneshot(request).await?;
//! assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
//! # Ok(()) }
//! ```

#[cfg(feature = "axum")]
mod axum;
mod compound;
mod cookie;
mod extension;
pub(crate) mod extractor;
mod fixed;
mod header;
mod idempotency_key;
mod join;
mod optional;
mod origin;
mod query;

#[cfg(feature = "axum")]
pub(crate) use self::axum::{FromParts, from_parts};
pub(crate) use self::extractor::{KeyError, KeyExtractor, Keys};
pub(crate) use self::join::join;

pub use self::compound::Compound;
pub use self::cookie::Cookie;
pub use self::extension::Extension;
pub use self::fixed::Fixed;
pub use self::header::Header;
pub use self::idempotency_key::IdempotencyKey;
pub use self::optional::Optional;
pub use self::query::QueryParam;

/// Longest name that is taken from a request by the extractors here and by those of axum, in bytes.
///
/// The lock service never sees more than 256 bytes, since longer names are hashed; this bounds what
/// a request makes the service hash and keep.
pub const MAX_NAME_LEN: usize = 8 * 1024;
