//! What every backend must do, case by case.
//!
//! [`conformance!`](crate::conformance!) makes a test of each. A case is a function of a [`Case`]
//! and fails by panicking.
//!
//! # Cancel safety
//!
//! A case is the body of a test and owns all that it uses. Dropping it drops its clients and guards, which
//! release their locks in the background. Planned faults stay in its harness, which serves no other case.

#![expect(clippy::missing_panics_doc, reason = "to panic is how a case fails")]

mod case;
mod need;
mod support;

pub mod admin;
pub mod adoption;
pub mod cancellation;
pub mod coordination;
pub mod crash;
pub mod downgrade;
pub mod exclusion;
pub mod fencing;
pub mod handover;
pub mod keys;
pub mod lease;
pub mod lost;
pub mod multi;
pub mod network;
pub mod permits;
pub mod queue;
pub mod records;
pub mod reentry;
pub mod release;
pub mod requests;
pub mod shared;
pub mod tickets;
pub mod waiting;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::Harness;

use self::case::two;

pub use self::case::Case;
pub use self::need::Need;

/// A harness under construction, as [`conformance!`](crate::conformance!) passes it.
pub type NewHarness = Pin<Box<dyn Future<Output = Arc<dyn Harness>> + Send>>;

/// Runs one case on a runtime of its own. For [`conformance!`](crate::conformance!).
///
/// # Panics
///
/// If the case does, if it takes longer than a minute, or if the backend lacks what it needs.
pub fn run<C, F>(needs: &[Need], harness: NewHarness, case: C)
where
    C: FnOnce(Case) -> F,
    F: Future<Output = ()>,
{
    on_a_runtime(async {
        let ready = Case::new(harness.await);
        for need in needs {
            let lacking = format!("the backend lacks {need:?}, name it in the skip list");
            assert!(need.is_met(&ready).await, "{lacking}");
        }
        case(ready).await;
    });
}

/// Asserts that a need of the skip list is missing. For [`conformance!`](crate::conformance!).
///
/// # Panics
///
/// If it is not missing.
pub fn run_lacking(need: Need, harness: NewHarness) {
    on_a_runtime(async {
        need.assert_lacking(&Case::new(harness.await)).await;
    });
}

/// Runs one case and returns its failure, if any. For tests of the suite.
pub fn caught<C, F>(harness: NewHarness, case: C) -> Option<String>
where
    C: FnOnce(Case) -> F,
    F: Future<Output = ()>,
{
    let failed = catch_unwind(AssertUnwindSafe(|| run(&[], harness, case))).err()?;
    let message = failed.downcast::<String>().map(|message| *message);
    Some(message.unwrap_or_else(|other| {
        other
            .downcast::<&str>()
            .map_or_else(|_| String::new(), |message| (*message).to_owned())
    }))
}

fn on_a_runtime(work: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let done = runtime.block_on(async { tokio::time::timeout(LIMIT, work).await });
    runtime.shutdown_background();
    assert!(done.is_ok(), "not done after {LIMIT:?}");
}

/// Longest time that a case may take.
const LIMIT: Duration = Duration::from_secs(60);
