//! What the engine, the layers and the memory backend promise, mostly under virtual time.

mod api;
mod blocking;
mod hand_over;
mod layers;
mod local_queue;
mod migrate;
mod multi;
mod owners;
mod registry;
mod scheduler;
mod server;
mod stress;
mod support;
mod tickets;
mod url;
