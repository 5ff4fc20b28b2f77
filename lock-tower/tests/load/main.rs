//! The layer behind real HTTP servers: several processes on one service, clients that go away,
//! services that stop, and much of everything.
//!
//! Some tests measure milliseconds (`isolation::` and names that end with `at_once`). Only nextest
//! runs them alone, by `.config/nextest.toml`; `cargo test` needs `--test-threads=1` for that.

#![cfg(feature = "axum")]

mod app;
mod client;
mod instance;
mod ledger;
mod server;
mod stage;
mod support;

mod bypass;
mod clones;
mod crowds;
mod disconnects;
mod faults;
mod isolation;
mod lost;
mod memory;
mod panics;
mod serial;
mod shutdown;
mod slow_reader;
