//! Locks inside of the caller's own transaction, and writes that a stale holder cannot make.

mod connection;
mod dialog;
mod fence;
mod locks;
#[cfg(feature = "mysql")]
mod mysql;
mod place;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "_server")]
mod server;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use self::connection::Connection;
pub use self::fence::{Fence, WriteError};
pub use self::locks::{TransactionLock, TransactionLocks};
