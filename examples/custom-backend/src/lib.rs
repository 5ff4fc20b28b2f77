//! A lock backend of one's own, under a scheme of its own: locks in the files of a directory.
//!
//! `files.rs` and `record.rs` are all of it: four small traits over one file. When to renew, when a
//! lock is lost, re-entry, namespaces, releases of guards that are dropped: all that is the same for
//! every backend and comes from `polylock_core`. `tests/conformance.rs` runs the suite that every backend
//! passes, and `examples/files-taker.rs` is the process that the suite kills.
//!
//! # Examples
//!
//! ```
//! use custom_backend::FilesBackend;
//! use polylock_core::{DistributedLockExt, Registry};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // `polylock::compiled_in()` instead of `Registry::new()` has the backends of polylock as well.
//! let registry = Registry::new().with(FilesBackend)?;
//! let directory = tempfile::tempdir()?;
//! let locks = registry.connect(&format!("files:{}", directory.path().display())).await?;
//! let guard = locks.lock("job").await?;
//! assert!(locks.try_lock("job").await?.is_none());
//! guard.release().await?;
//! assert!(locks.try_lock("job").await?.is_some());
//! # Ok(())
//! # }
//! ```

mod files;
mod record;

pub use files::{Files, FilesBackend};
