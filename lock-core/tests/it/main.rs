//! What the engine, the layers and the memory backend promise, mostly under virtual time.

mod api;
mod blocking;
mod hand_over;
mod layers;
mod local_queue;
mod migrate;
mod multi;
mod owners;
mod pending;
mod registry;
mod runtimes;
mod scheduler;
mod server;
mod stress;
mod support;
mod tickets;
mod timing;
mod url;
