//! The layer behind real HTTP servers: several processes on one service, clients that go away,
//! services that stop, and much of everything.

mod app;
mod client;
mod instance;
mod ledger;
mod server;
mod support;

mod bypass;
mod disconnects;
mod faults;
mod isolation;
mod lost;
mod memory;
mod panics;
mod serial;
mod shutdown;
mod slow_reader;
