//! What the lock backends of polylock are tested with, besides the conformance suite.
//!
//! - [`clock`] makes the wall clock of a program wrong.
//! - [`servers`] starts private servers, [`proxy`] makes the network before them fail, and [`network`]
//!   the one between them.
//! - [`sim`] runs the engine over a simulated store from a seed, and [`mutants`] break it.
//! - [`doubles`] have flaws that the suite has to find.
//!
//! The suite itself is the crate `lock-conformance`, which is found here as well.

pub mod clock;
pub mod doubles;
pub mod mutants;
pub mod network;
pub mod proxy;
pub mod servers;
pub mod sim;

pub use lock_conformance::{cases as conformance, conformance, history, taker};

/// What a backend gives the conformance suite.
pub mod harness {
    pub use lock_conformance::{Faults, Harness, Look};
}

/// What is behind a mutex, also after a test that had it has panicked.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
