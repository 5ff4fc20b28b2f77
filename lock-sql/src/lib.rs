//! Locks in SQL databases: leases in a table that several processes share.
//!
//! Each database is a feature of its own, and there is nothing without one.
#![cfg_attr(
    feature = "sqlite",
    doc = r#"
With `sqlite` there is [`Sqlite`], for the processes of one machine.

# Examples

Two connections stand for two processes on one machine:

```
use lock_core::prelude::*;
use lock_sql::Sqlite;

# #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
# let directory = tempfile::tempdir()?;
# let path = directory.path().join("locks.db");
let here = Sqlite::open(&path).await?;
let there = Sqlite::open(&path).await?;

let guard = here.lock("reports/nightly").await?;
assert!(there.try_lock("reports/nightly").await?.is_none());

let first = guard.fencing_token();
guard.release().await?;
let guard = there.lock("reports/nightly").await?;
assert!(guard.fencing_token() > first);
# Ok(()) }
```
"#
)]

#[cfg(feature = "sqlite")]
mod admin;
#[cfg(feature = "sqlite")]
mod backend;
#[cfg(feature = "sqlite")]
mod config;
#[cfg(feature = "sqlite")]
mod dialect;
#[cfg(feature = "sqlite")]
mod error;
#[cfg(feature = "sqlite")]
mod lease;
#[cfg(feature = "sqlite")]
mod leases;
#[cfg(feature = "sqlite")]
mod live;
#[cfg(feature = "sqlite")]
mod lock;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod store;
#[cfg(feature = "sqlite")]
mod table;
#[cfg(feature = "sqlite")]
mod wakes;

#[cfg(feature = "sqlite")]
pub use crate::backend::SqliteBackend;
#[cfg(feature = "sqlite")]
pub use crate::config::SqliteConfig;
#[cfg(feature = "sqlite")]
pub use crate::lock::Sqlite;
