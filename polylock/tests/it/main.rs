//! The tests of `polylock`, as one program: each that is linked by itself costs seconds.

#[cfg(all(
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]
mod blocking;
#[cfg(all(
    feature = "config-schema",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]
mod config;
mod facade;
#[cfg(feature = "macros")]
mod locked;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]
mod migrate;
#[cfg(feature = "otel")]
mod otel;
