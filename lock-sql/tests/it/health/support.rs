use std::path::PathBuf;
use std::process::{Command, Output};

use lock_testkit::clock::ShiftedClock;
use polylock_core::{ErrorKind, HealthCheck, Registry, Status};
use polylock_sql::{MySqlBackend, PostgresBackend, SqliteBackend};

use crate::checks::refusal;

pub(crate) const MODES: [&str; 3] = ["row", "lease", "advisory"];

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

/// The same as [`faults`], by `examiner.rs`, which cargo builds with the tests, in a process whose clock
/// is three seconds ahead of that of the server.
pub(crate) fn faults_ahead(url: &str) -> Vec<String> {
    let clock = ShiftedClock::new();
    clock.set_offset(3);
    let test = std::env::current_exe().expect("this program");
    let folder = test.parent().expect("its folder");
    let program: PathBuf = folder.with_file_name("examples").join("lock-examiner");
    assert!(
        program.exists(),
        "build it by cargo build -p polylock-sql --all-features --examples"
    );
    let mut command = Command::new(program);
    clock.apply(command.arg(url));
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it runs");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let said = String::from_utf8(stdout).expect("text");
    let fault = |line: &str| {
        let (check, rest) = line.split_once(' ')?;
        let (status, found) = rest.split_once(' ')?;
        let is_usual = USUAL.iter().any(|usual| found.starts_with(usual));
        let is_fault = ["warning", "error"].contains(&status) && !is_usual;
        is_fault.then(|| format!("{check}: {found}"))
    };
    said.lines().filter_map(fault).collect()
}
