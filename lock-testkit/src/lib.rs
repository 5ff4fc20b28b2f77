//! What the lock backends of polylock are tested with, besides the conformance suite.
//!
//! - [`locks`] has short forms for tests of locks.
//! - [`clock`] makes the wall clock of a program wrong.
//! - [`servers`] starts private servers, [`proxy`] makes the network before them fail, and [`network`]
//!   the one between them.
//! - [`sim`] runs the engine over a simulated store from a seed, and [`mutants`] break it, so that the
//!   simulation or the suite finds each of them.
//!
//! The suite itself is the crate `polylock-conformance`, which is found here as well.
//!
//! A function here panics if a server is not installed, refuses its options or does not do what it is
//! asked within 5 s, or 60 s for a start: a test cannot go on without. The functions that begin with
//! `try_` return the error.

#![expect(
    clippy::missing_panics_doc,
    reason = "the documentation of the crate says it once"
)]

mod busy_engine;
pub mod clock;
mod command;
pub mod locks;
pub mod mutants;
pub mod network;
mod numbers;
pub mod proxy;
pub mod servers;
pub mod sim;

use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

pub use busy_engine::BusyEngine;
pub use polylock_conformance::{cases as conformance, conformance, history, taker};

/// The interface of a backend to the conformance suite.
pub mod harness {
    pub use polylock_conformance::{Faults, Harness, Look};
}

/// Polls a future once, and leaves it to the caller.
pub async fn polled_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Drops a future when it has been polled `polls` times, each time that it woke, and is not ready.
pub async fn polled<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut polled = 0;
    std::future::poll_fn(|cx| {
        polled += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled >= polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Polls a condition every 2 ms, and panics after 10 s.
fn wait(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !met() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Locks a mutex, also after a panic of a test that held it.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
