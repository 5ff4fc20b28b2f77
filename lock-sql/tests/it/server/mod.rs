//! PostgreSQL and MariaDB keep every promise, in every mode.

mod capabilities;
mod clocks;
mod conformance;
mod dropped;
mod durability;
mod ended;
mod limits;
mod names;
mod power;
mod races;
mod refused;
mod silence;
mod sockets;
mod support;
mod waiters;
