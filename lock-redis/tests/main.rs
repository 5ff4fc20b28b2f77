//! The tests of this crate, in one program: each one links for as long as all of them.

mod cancellation;
mod cluster;
mod conformance;
mod cost;
mod credentials;
mod failover;
mod fencing;
mod health;
mod interop;
mod lengths;
mod network;
mod own_client;
mod partition;
mod queue;
mod quorum;
mod refusals;
mod repeats;
mod restart;
mod rights;
mod sentinel;
mod server;
mod shared;
mod support;
mod told;
