//! Wrappers that add one thing to a [`DistributedLock`](crate::DistributedLock).
//!
//! [`Registry::connect`](crate::Registry::connect) builds [`Observe`] over [`LocalQueue`] over
//! [`Prefix`] over the backend; each can be used by itself, in any order. A layer of your own
//! implements [`DistributedLock`](crate::DistributedLock), forwards every method, and carries
//! `#[deny(clippy::missing_trait_methods)]` so that none is forgotten.

mod key_map;
mod local_queue;
mod migrate;
mod multi;
mod observe;
mod prefix;

pub use crate::event::{Event, EventKind, Observer};

pub use self::key_map::{HashedKey, KeyMap, KeyState};
pub use self::local_queue::LocalQueue;
pub use self::migrate::Migrate;
pub use self::multi::acquire_all;
pub use self::observe::Observe;
pub use self::prefix::Prefix;
pub(crate) use self::prefix::check_namespace;
