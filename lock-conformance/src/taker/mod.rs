//! A process that acquires a lock, to be killed and stopped from a test.
//!
//! A backend wraps [`main`] in an example of its own, `examples/lock-taker.rs`:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use polylock_core::Registry;
//! use polylock_core::memory::MemoryBackend;
//!
//! fn main() -> ExitCode {
//!     polylock_conformance::taker::main(Registry::new().with(MemoryBackend::default()))
//! }
//! ```
//!
//! and its harness returns [`Taker::example`] with that name.

mod process;
mod work;

pub use self::process::{Take, Taker, TakerProcess};
pub use self::work::main;
