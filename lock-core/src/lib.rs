//! The lock API of polylock, the engine that keeps leases, the layers and the memory backend.
//!
//! ```
//! use polylock_core::memory::Memory;
//! use polylock_core::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
//! let locks = Memory::new();
//! let guard = locks.lock("orders/42").await?;
//! let token = guard.fencing_token().expect("memory has tokens");
//! let done = guard.run(async move { token.value() > 0 }).await?;
//! assert!(done);
//! assert_eq!(guard.release().await?, Released::Clean);
//! # Ok(()) }
//! ```
//!
//! # In applications
//!
//! Depend on the facade crate `polylock`, which opens backends by URL. [`DistributedLockExt`]
//! acquires locks, [`LockGuard`] is a held lock, and [`Error::kind`] tells errors apart.
//!
//! # In libraries
//!
//! Take an `Arc<dyn DistributedLock>` and let the application choose. A function that needs more
//! than an exclusive lock looks at [`DistributedLock::capabilities`] at its start.
//!
//! # In backends
//!
//! Implement [`DistributedLock`], [`Lease`] and, for leases that expire, [`Renewer`]. Use an
//! [`Engine`](engine::Engine), and make guards with [`PendingRelease`]. This crate supplies the lease
//! engine, the local queue, re-entry, loss signals and background releases.
//!
//! # Cancel safety
//!
//! Futures of this crate may be dropped at any await point. A dropped acquisition leaves its queue
//! and releases a granted lock in the background. A dropped release continues in the background. If
//! the server is unreachable, a lock stays held for at most one ttl or session timeout. Each function
//! documents more under this heading.
//!
//! # Time
//!
//! A lease counts from just before its request is sent, by a clock that also advances while the
//! machine is suspended. A margin for clock drift is subtracted: a tenth of the ttl, at least 50 ms.
//! ZooKeeper locks live with a session; their margin is a sixteenth of its timeout. Durations are
//! [`Duration`](std::time::Duration); in URLs they carry a unit (`busy-timeout=5s`).
//!
//! # Threads
//!
//! The first connection of a process starts one thread, `polylock-engine`. It renews the leases of all
//! backends and sends background releases, so that code that blocks its own runtime loses no locks.
//!
//! A process that is forked after that (`fork` without `exec`) has no such thread: its locks are not renewed, it is
//! not notified of their loss, and a guard that it drops may release the lock of its parent. Fork before the first
//! connection. [`Registry::connect`] is [`Unsupported`](ErrorKind::Unsupported) in such a process.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admin;
mod attempt_state;
pub mod blocking;
mod capabilities;
mod credentials;
pub mod engine;
mod error;
mod event;
mod ext;
pub mod fencing;
mod guard;
mod health;
mod holder;
mod key;
mod label;
pub mod layers;
mod lease;
mod lock;
mod lost_reason;
pub mod memory;
mod mode;
mod owner;
mod registry;
mod request;
mod secret;
#[doc(hidden)]
pub mod suggest;
mod ticket;
mod token;
mod url;

pub use crate::capabilities::{Capabilities, Fencing, LockLifetime, Waiting};
pub use crate::credentials::{Credentials, Login, LoginSource, PasswordFile};
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::ext::{DistributedLockExt, MultiRequestBuilder, RequestBuilder};
pub use crate::guard::{
    Expiring, IntoTicketError, LockGuard, LostSignal, MultiGuard, PendingRelease,
};
pub use crate::health::{HealthCheck, HealthRule, RuleOutcome, Status};
pub use crate::key::LockKey;
pub use crate::label::Label;
pub use crate::lease::{
    Grant, Lease, LeaseControl, LeaseState, Liveness, Released, RenewalRequest, Renewer, TtlRule,
};
pub use crate::lock::DistributedLock;
pub use crate::lost_reason::LostReason;
pub use crate::mode::{Mode, Renewal, Wait};
pub use crate::owner::Owner;
pub use crate::registry::{Backend, Registry};
pub use crate::request::AcquireRequest;
pub use crate::ticket::Ticket;
pub use crate::token::FencingToken;
pub use crate::url::{Host, LockUrl, Params, TlsFiles};

/// The names that almost every user of a lock imports.
pub mod prelude {
    pub use crate::{
        DistributedLock, DistributedLockExt, Error, ErrorKind, LockGuard, LockKey, Mode, Released,
        Wait,
    };
}
