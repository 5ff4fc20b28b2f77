//! PostgreSQL and MariaDB keep every promise, in every mode.

mod clocks;
mod conformance;
mod credentials;
mod doubt;
mod dropped;
mod durability;
mod ended;
mod inline;
mod limits;
mod names;
mod outage;
mod own_options;
mod own_pool;
mod power;
mod purge;
mod races;
mod refused;
mod renewal;
mod silence;
mod sockets;
pub(crate) mod support;
mod waiters;
