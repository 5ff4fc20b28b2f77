//! A tower layer that lets requests with the same key run one at a time, on every instance.
//!
//! ```
//! use std::sync::Arc;
//!
//! use http::{Request, Response};
//! use polylock_core::memory::Memory;
//! use polylock_tower::{HeldLock, KeyLockLayer, Keys, Locker};
//! use tower::{Layer as _, ServiceExt as _, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let accounts = Locker::builder(Arc::new(Memory::new()), "accounts").build()?;
//! let layer = KeyLockLayer::new(accounts, |parts: &http::request::Parts| {
//!     // As it is spelled: a path with percent-encoded parts needs a decoded value, as axum's `Path`.
//!     Ok(Keys::one(parts.uri.path()))
//! });
//! let service = layer.layer(service_fn(|request: Request<String>| async move {
//!     let held = request.extensions().get::<HeldLock>().expect("the layer has put it there");
//!     held.ensure_held()?;
//!     Ok::<_, polylock_tower::NotHeld>(Response::new("transferred".to_owned()))
//! }));
//!
//! let response = service.oneshot(Request::post("/accounts/42").body(String::new())?).await?;
//! assert_eq!(response.status(), 200);
//! # Ok(()) }
//! ```
//!
//! # The parts
//!
//! - [`Locker`]: the lock service, the key namespace, how many requests per key run at once
//!   ([`LockerBuilder::permits`]; one by default), how long others wait, and how many may wait.
//! - [`KeyLockLayer`]: locks HTTP and gRPC requests; [`plain::CallLockLayer`] locks other requests.
//! - [`KeyExtractor`]: reads the key of a request; [`keys`] has three of them and examples of closures,
//!   and any extractor of axum is one ([`KeyLockLayer::from_extractor`]).
//! - [`HeldLock`]: what the handler gets.
//! - [`RejectionResponder`]: makes the response to a rejected request; [`ProblemDetails`] by default.
//! - [`idempotency`]: handles a repeated request once.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `axum` | `HeldLock` and `Locker` as extractors, `Rejection` and `NotHeld` as responses, keys by extractors |
//! | `tonic` | gRPC statuses with `RetryInfo`; a locked gRPC service keeps its name |
//! | `redis` | stored responses in Redis |
//! | `sqlite`, `postgres`, `mysql` | stored responses in a database |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "axum")]
mod axum;
mod held_lock;
pub mod idempotency;
pub mod keys;
mod layer;
mod locker;
mod log_limit;
pub mod plain;
mod rejection;
mod service;

pub use crate::held_lock::{HeldLock, LockerGuard, NotHeld};
pub use crate::keys::extractor::{KeyError, KeyExtractor, Keys};
pub use crate::layer::options::{HoldUntil, OnDisconnect, OnLost, SafeMethods};
pub use crate::layer::{BodyError, KeyLock, KeyLockLayer, LockBody};
pub use crate::locker::{Locker, LockerBuilder, WhenUnavailable};
pub use crate::rejection::{
    Format, ProblemDetails, Reason, RejectedRequest, Rejection, RejectionObserver,
    RejectionResponder, RequestInfo,
};
pub use crate::service::ResponseFuture;
