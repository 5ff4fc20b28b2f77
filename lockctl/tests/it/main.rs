//! The tests of `lockctl`, as one program: each that is linked by itself costs seconds. They share
//! no state, since each runs processes in a place of its own.

#[path = "../common/mod.rs"]
mod common;

mod backends;
mod child;
mod config;
mod doctor;
mod environment;
mod exit_codes;
mod fixture;
mod lease;
mod loss;
mod modes;
mod queries;
mod secrets;
mod waiting;

#[cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]
mod foreign;
#[cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]
mod keys;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod schema;
#[cfg(feature = "zk")]
mod zookeeper;
