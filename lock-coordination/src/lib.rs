//! Leader election, and jobs that run once, on top of locks.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use polylock_coordination::{Election, Once, OnceOutcome};
//! use polylock_core::DistributedLock;
//! use polylock_core::memory::Memory;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
//! let locks: Arc<dyn DistributedLock> = Arc::new(Memory::new());
//!
//! let election = Election::new(Arc::clone(&locks), "scheduler")?;
//! let leadership = election.campaign().await?; // waits until this instance leads
//! leadership.proclaim("10.0.0.7:9000").await?; // for the followers
//! assert!(election.leads());
//! leadership.resign().await?;
//!
//! let report = Once::every(locks, "nightly-report", Duration::from_secs(24 * 60 * 60))?;
//! let first = report.run(|_| async { Ok::<_, std::io::Error>(42) }).await?;
//! assert!(matches!(first, OnceOutcome::Ran(42)));
//! let second = report.run(|_| async { Ok::<_, std::io::Error>(42) }).await?;
//! assert!(matches!(second, OnceOutcome::Skipped(_))); // on this instance and on every other one
//! # Ok(()) }
//! ```
//!
//! Both need a backend with fencing tokens and an administration
//! ([`Capabilities`](polylock_core::Capabilities)), and no other feature. An election is an exclusive
//! lock without a [`max_hold`](polylock_core::AcquireRequest::with_max_hold). A job is a lock that is
//! held while it runs. Shared data, such as the address of a leader and the last run of a job, is a
//! [`Record`](polylock_core::admin::Record) beside that lock. A former holder cannot replace it.
//!
//! The limits of a lock apply: a process that is paused in the middle of its work may continue after
//! another one has been elected. With [`Term::fencing_token`] and [`OnceRun::fencing_token`] the data
//! can refuse its writes.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod election;
mod observer;
mod once;
mod requirements;

pub use crate::election::{Backoff, Election, Leader, Leadership, Term};
pub use crate::observer::{CoordinationEvent, CoordinationObserver};
pub use crate::once::{LastRun, Once, OnceGuard, OnceOutcome, OnceRun, OnceStart, RunOutcome};
