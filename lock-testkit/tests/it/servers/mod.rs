//! Private servers: each kind lives and ends, and obeys its options.

mod clock;
mod databases;
mod lifecycle;
mod redis;
mod shared;
mod zookeeper;
