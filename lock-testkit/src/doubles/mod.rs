//! A backend in small, with a server in this process and flaws that can be switched on.
//!
//! It proves that the conformance suite finds each flaw, and passes without any.

pub mod redis_like;
mod wire;
