//! Histories of the real engine, queue and guard over a simulated store, from a seed.
//!
//! A history is a few processes that work under locks for fifteen seconds of virtual time, while
//! processes are paused and killed, messages are lost, late and doubled, the store restarts and all
//! clocks run apart as far as the margin of a lease allows. Everything that happens follows from
//! the seed, so that a history that went wrong can be looked at again.
//!
//! What is simulated is the store, the network and the clocks. The engine with its scheduler, the
//! guard, [`LocalQueue`](polylock_core::layers::LocalQueue) and the other layers are the real ones.

mod backend;
mod client;
mod delivery;
mod fault;
mod history;
mod judge;
mod log;
mod message;
mod nemesis;
mod net;
mod plan;
mod process;
mod recorder;
mod rng;
mod store;
mod violation;
mod workload;
mod world;

pub use self::backend::SimBackend;
pub use self::fault::SimFault;
pub use self::history::{Outcome, Simulation};
pub use self::judge::Tally;
pub use self::rng::Rng;
pub use self::violation::{SimViolation, ViolationKind};
