//! The tests of this crate, as one program: each that is linked by itself costs seconds.

#[cfg(feature = "sqlite")]
mod cancellation;
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod checks;
#[cfg(feature = "sqlite")]
mod conformance;
#[cfg(feature = "sqlite")]
mod containers;
#[cfg(feature = "sqlite")]
mod file;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod file_system;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod health;
#[cfg(feature = "sqlite")]
mod processes;
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod server;
#[cfg(feature = "sqlite")]
mod shared_memory;
#[cfg(feature = "sqlite")]
mod support;
#[cfg(feature = "sqlite")]
mod table;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "tls"))]
mod tls;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod transaction;
