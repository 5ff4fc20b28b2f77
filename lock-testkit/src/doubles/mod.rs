//! Backends in small, each with the protocol of a real one and a server in this process.
//!
//! They prove that the traits of the core carry locks that live with a lease, a session or a
//! connection, and that the conformance suite judges all of them.

pub mod redis_like;
pub mod row_lock;
mod wire;
pub mod zk_like;
