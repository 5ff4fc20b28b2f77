//! The tests of `lockctl`, as one program: each that is linked by itself costs seconds. They share
//! no state, since each runs processes in a place of its own.

mod backends;
#[cfg(feature = "bench")]
mod bench;
mod child;
mod config;
mod doctor;
mod environment;
mod exit_codes;
mod fixture;
mod lead;
mod lease;
mod loss;
mod modes;
mod once;
mod queries;
mod secrets;
mod top;
mod waiting;

/// On servers of each kind.
#[cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]
mod servers {
    mod connection;
    mod coordination;
    mod foreign;
    mod keys;
    mod lease;
    mod outages;
    mod schema;
    mod zookeeper;
}
