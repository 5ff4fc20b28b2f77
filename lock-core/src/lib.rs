//! The lock API of polylock, the engine that keeps leases, the layers and the memory backend.

pub mod admin;
mod capabilities;
pub mod engine;
mod error;
mod ext;
mod guard;
mod key;
mod label;
pub mod layers;
mod lease;
mod lock;
pub mod memory;
mod owner;
mod registry;
mod request;
mod token;
mod url;

pub use crate::capabilities::{Bound, Capabilities, Fencing, Waiting};
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::ext::{DistributedLockExt, MultiRequestBuilder, RequestBuilder};
pub use crate::guard::{Expiring, LockGuard, LostReason, LostSignal, MultiGuard, PendingRelease};
pub use crate::key::LockKey;
pub use crate::label::Label;
pub use crate::lease::{
    Grant, Lease, LeaseControl, LeaseState, Released, RenewalRequest, Renewer, Upkeep,
};
pub use crate::lock::DistributedLock;
pub use crate::owner::Owner;
pub use crate::registry::{Backend, Registry};
pub use crate::request::{AcquireRequest, Mode, Renewal, Wait};
pub use crate::token::FencingToken;
pub use crate::url::LockUrl;

/// What almost every user of a lock names.
pub mod prelude {
    pub use crate::{
        DistributedLock, DistributedLockExt, Error, ErrorKind, LockGuard, LockKey, Mode, Released,
        Wait,
    };
}
