//! A tower layer that lets requests with the same key run one at a time, on every instance.

mod answer;
#[cfg(feature = "axum")]
mod axum;
mod held;
pub mod idempotency;
pub mod keys;
mod layer;
mod locker;
pub mod plain;

pub use crate::answer::{Answer, Asked, Format, Problem, Reason, Rejection};
pub use crate::held::{HeldLock, NotHeld};
pub use crate::keys::extractor::{KeyError, KeyExtractor, Keys};
pub use crate::layer::{
    BodyError, HoldUntil, KeyLock, KeyLockLayer, LockBody, OnDisconnect, OnLost, ResponseFuture,
    SafeMethods,
};
pub use crate::locker::{Locked, Locker, LockerBuilder, WhenUnavailable};
