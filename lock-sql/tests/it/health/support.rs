use polylock_core::{ErrorKind, HealthCheck, Registry, Status};
use polylock_sql::{MySqlBackend, PostgresBackend, SqliteBackend};

use crate::checks::refusal;

pub(crate) async fn check_health(url: &str) -> Vec<HealthCheck> {
    let registry = Registry::new().with(MySqlBackend::default());
    let registry = registry.and_then(|known| known.with(PostgresBackend::default()));
    let registry = registry.and_then(|known| known.with(SqliteBackend::default()));
    let found = registry
        .expect("the schemes differ")
        .check_health(url)
        .await;
    found.expect("it can be looked at")
}

/// The error of a strict configuration for a server.
pub(crate) async fn strictly(url: &str) -> String {
    let error = refusal(&format!("{url}?strict=on")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    error.message().to_owned()
}

/// The faults of a database, as `check: what`, without those of the testkit's default settings.
pub(crate) async fn faults(url: &str) -> Vec<String> {
    let found = check_health(url).await;
    let faults = found.iter().filter(|found| found.is_fault());
    faults
        .filter(|found| !USUAL.contains(&&*found.summary))
        .map(|found| format!("{}: {}", found.id, found.summary))
        .collect()
}

const USUAL: [&str; 2] = ["fsync is off", "innodb_flush_log_at_trx_commit is 2"];

/// Whether there is one fault, of this check, that says so.
#[track_caller]
pub(crate) fn assert_only(faults: &[String], check: &str, says: &str) {
    let [fault] = faults else {
        panic!("one fault of {check} that says {says:?}: {faults:?}");
    };
    assert!(fault.starts_with(&format!("{check}: ")), "{fault}");
    assert!(fault.contains(says), "{fault}");
}

/// Asserts that all checks were made in this order, and that nothing is wrong.
#[track_caller]
pub(crate) fn assert_clean(found: &[HealthCheck], checks: &[&str]) {
    let names: Vec<_> = found.iter().map(|found| found.id).collect();
    assert_eq!(names, checks);
    for found in found {
        assert_eq!(found.status, Status::Ok, "{}: {found}", found.id);
    }
}
