//! Locks in SQL databases: leases in a table that several processes share.
//!
//! Each database is a feature of its own; without any, the crate is empty.

#![cfg(feature = "_sql")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    feature = "sqlite",
    doc = r#"
With `sqlite` there is [`Sqlite`], for the processes of one machine.

# Examples

Two connections stand for two processes on one machine:

```
use polylock_core::prelude::*;
use polylock_sql::Sqlite;

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
#![cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "sqlite")),
    expect(dead_code, reason = "each database uses a part of what they share")
)]

#[cfg(all(feature = "sqlite", not(unix)))]
compile_error!(
    "the feature `sqlite` of polylock needs Linux or macOS: leases in a file end by a boot clock that \
     all processes of the machine share; on Windows use another backend"
);

mod admin;
mod backend;
mod boot_id;
mod budget;
mod checks;
mod config;
#[cfg(feature = "_server")]
mod database;
mod db_error;
mod dialect;
mod error;
mod held_leases;
mod lease;
mod leases;
mod lock;
mod on_drop;
#[cfg(feature = "_server")]
mod pool;
#[cfg(feature = "_server")]
mod purge;
#[cfg(feature = "_server")]
mod records;
mod release_notifier;
mod schema;
#[cfg(feature = "_server")]
mod session;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod table;
pub mod transaction;
#[cfg(feature = "_server")]
mod wire;

#[cfg(feature = "mysql")]
pub use crate::backend::MySqlBackend;
#[cfg(feature = "postgres")]
pub use crate::backend::PostgresBackend;
#[cfg(feature = "sqlite")]
pub use crate::backend::SqliteBackend;
#[cfg(feature = "sqlite")]
pub use crate::config::SqliteConfig;
#[cfg(feature = "_server")]
pub use crate::config::{SqlConfig, SqlMode};
#[cfg(feature = "_server")]
pub use crate::lock::SqlLock;
#[cfg(feature = "sqlite")]
pub use crate::lock::Sqlite;
pub use crate::schema::{Applied, Schema};
