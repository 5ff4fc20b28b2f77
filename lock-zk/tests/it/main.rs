//! The tests of this crate, as one program: each that is linked by itself costs seconds.

mod admin;
mod auth;
mod cancellation;
mod checks;
mod clocks;
mod conformance;
mod connector;
mod containers;
mod cost;
mod directory;
mod ensemble;
mod fencing;
mod heartbeat;
mod network;
mod other_clients;
mod records;
mod sequence;
mod session;
mod support;
#[cfg(feature = "tls")]
mod tls;
