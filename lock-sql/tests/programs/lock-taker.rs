//! The process that the conformance suite starts, stops and kills.

use std::process::ExitCode;

use lock_core::Registry;

fn main() -> ExitCode {
    let registry = Ok(Registry::new());
    #[cfg(feature = "mysql")]
    let registry = registry.and_then(|r| r.with(lock_sql::MySqlBackend::default()));
    #[cfg(feature = "postgres")]
    let registry = registry.and_then(|r| r.with(lock_sql::PostgresBackend::default()));
    #[cfg(feature = "sqlite")]
    let registry = registry.and_then(|r| r.with(lock_sql::SqliteBackend::default()));
    lock_testkit::taker::main(registry)
}
