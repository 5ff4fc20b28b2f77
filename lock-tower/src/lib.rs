//! A tower layer that lets requests with the same key run one at a time, on every instance.
//!
//! ```
//! use std::sync::Arc;
//!
//! use http::{Request, Response};
//! use lock_core::memory::Memory;
//! use lock_tower::{HeldLock, KeyLockLayer, Keys, Locker};
//! use tower::{Layer as _, ServiceExt as _, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let accounts = Locker::builder(Arc::new(Memory::new()), "accounts").build()?;
//! let layer = KeyLockLayer::new(accounts, |parts: &http::request::Parts| {
//!     Ok(Keys::one(parts.uri.path()))
//! });
//! let service = layer.layer(service_fn(|request: Request<String>| async move {
//!     let held = request.extensions().get::<HeldLock>().expect("the layer has put it there");
//!     held.ensure_held()?;
//!     Ok::<_, lock_tower::NotHeld>(Response::new("transferred".to_owned()))
//! }));
//!
//! let response = service.oneshot(Request::post("/accounts/42").body(String::new())?).await?;
//! assert_eq!(response.status(), 200);
//! # Ok(()) }
//! ```
//!
//! # The parts
//!
//! - [`Locker`]: who queues for which keys on which lock service, how long, and how many may.
//! - [`KeyLockLayer`]: what that means for a request of HTTP or gRPC; [`plain::CallLockLayer`] for
//!   services whose requests are something else.
//! - [`KeyExtractor`]: which key a request needs; [`keys`] has ready-made ones, and any extractor of
//!   axum is one ([`KeyLockLayer::from_extractor`]).
//! - [`HeldLock`]: what the handler gets.
//! - [`Answer`]: what a client is told whose request was rejected; [`Problem`] unless another is set.
//! - [`idempotency`]: requests that are sent again and answered once.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `axum` | `HeldLock` and `Locker` as extractors, `Rejection` and `NotHeld` as responses, keys by extractors |
//! | `tonic` | gRPC statuses with `RetryInfo`; a locked gRPC service keeps its name |
//! | `sqlite`, `postgres`, `mysql` | stored responses in a database |

mod answer;
#[cfg(feature = "axum")]
mod axum;
mod held;
pub mod idempotency;
mod inner;
pub mod keys;
mod layer;
mod locker;
pub mod plain;

pub use crate::answer::{
    Answer, Asked, Format, Problem, Reason, RefusedRequest, Rejection, RejectionObserver,
};
pub use crate::held::{HeldLock, NotHeld};
pub use crate::keys::extractor::{KeyError, KeyExtractor, Keys};
pub use crate::layer::{
    BodyError, HoldUntil, KeyLock, KeyLockLayer, LockBody, OnDisconnect, OnLost, ResponseFuture,
    SafeMethods,
};
pub use crate::locker::{Locked, Locker, LockerBuilder, WhenUnavailable};
