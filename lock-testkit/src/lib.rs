//! What every lock backend is tested with.
//!
//! - [`conformance!`] makes a test of every case that a backend has to pass, by name; the backend
//!   supplies a [`Harness`](harness::Harness).
//! - [`history`] records what happens to locks and judges it.
//! - [`clock`] makes the wall clock of a program wrong.
//! - [`servers`] starts private servers, [`proxy`] makes the network before them fail, and [`network`]
//!   the one between them.
//! - [`taker`] is a process that takes a lock, to be killed and stopped.
//! - [`sim`] runs the engine over a simulated store from a seed, and [`mutants`] break it.

pub mod clock;
pub mod conformance;
pub mod doubles;
pub mod harness;
pub mod history;
mod macros;
pub mod mutants;
pub mod network;
pub mod proxy;
pub mod servers;
pub mod sim;
pub mod taker;
