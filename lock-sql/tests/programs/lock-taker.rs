//! The process that the conformance suite starts, stops and kills.

use std::process::ExitCode;

use polylock_core::Registry;

fn main() -> ExitCode {
    let registry = Ok(Registry::new());
    #[cfg(feature = "mysql")]
    let registry = registry.and_then(|r| r.with(polylock_sql::MySqlBackend::default()));
    #[cfg(feature = "postgres")]
    let registry = registry.and_then(|r| r.with(polylock_sql::PostgresBackend::default()));
    #[cfg(feature = "sqlite")]
    let registry = registry.and_then(|r| r.with(polylock_sql::SqliteBackend::default()));
    lock_testkit::taker::main(registry)
}
