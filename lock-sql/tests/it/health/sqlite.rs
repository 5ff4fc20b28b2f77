use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use lock_core::prelude::*;
use lock_sql::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use tempfile::TempDir;

use crate::health::support::{assert_clean, assert_only, check_health, faults, faults_by, refusal};

const CHECKS: [&str; 6] = ["version", "filesystem", "rights", "flush", "table", "clock"];

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// A URL, and the file that it names.
fn place(directory: &TempDir) -> (String, std::path::PathBuf) {
    let file = directory.path().join("locks.db");
    (format!("sqlite:{}", file.display()), file)
}

async fn connect(file: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(file);
    options
        .create_if_missing(true)
        .connect()
        .await
        .expect("it opens")
}

async fn sql(file: &Path, text: &str) {
    let mut raw = connect(file).await;
    raw.execute(AssertSqlSafe(text.to_owned()))
        .await
        .expect("it is done");
    raw.close().await.expect("it closes");
}

#[tokio::test]
async fn a_healthy_file_has_no_fault_and_one_that_is_not_there_is_not_made() {
    let directory = directory();
    let (url, file) = place(&directory);
    let far = format!(
        "sqlite:{}/a/b/locks.db?create-dir=on",
        directory.path().display()
    );
    for url in [&url, &far] {
        assert_clean(&check_health(url).await, &CHECKS);
    }
    assert_eq!(
        fs::read_dir(directory.path()).expect("it is there").count(),
        0
    );
    let locks = Sqlite::open(&file).await.expect("it starts");
    let guard = locks.lock("job").await.expect("it is free");
    // Also while it is used, which it is after that.
    let found = check_health(&url).await;
    assert_clean(&found, &CHECKS);
    assert!(
        found[4].summary.contains("is there, with layout 1"),
        "{}",
        found[4]
    );
    guard.release().await.expect("it is released");
    // A file that somebody else makes for us.
    let (url, file) = (
        url.replace("locks.db", "empty.db"),
        file.with_file_name("empty.db"),
    );
    fs::write(file, "").expect("it is made");
    assert_clean(&check_health(&url).await, &CHECKS);
}

#[tokio::test]
async fn a_missing_directory_is_found() {
    let directory = directory();
    let url = format!("sqlite:{}/a/locks.db", directory.path().display());
    assert_only(&faults(&url).await, "rights", "does not exist");
}

#[tokio::test]
async fn a_file_system_in_memory_is_found() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let (url, file) = place(&directory);
    assert_only(&faults(&url).await, "filesystem", "in memory");
    drop(Sqlite::open(&file).await.expect("it starts"));
    assert_only(&faults(&url).await, "filesystem", "in memory");
}

#[tokio::test]
async fn each_fault_of_a_table_is_found_by_itself() {
    let directory = directory();
    let (url, file) = place(&directory);
    fs::write(&file, "no database, but a text of some length").expect("it is made");
    assert_only(
        &faults(&url).await,
        "table",
        "something else than a database",
    );
    fs::remove_file(&file).expect("it is there");
    drop(Sqlite::open(&file).await.expect("it starts"));
    sql(&file, "UPDATE polylock_locks SET token = 7 WHERE key = x''").await;
    assert_only(&faults(&url).await, "table", "has layout 7");
    sql(
        &file,
        "DROP TABLE polylock_locks; CREATE TABLE polylock_locks (key BLOB)",
    )
    .await;
    assert_only(&faults(&url).await, "table", "has no columns slot");
}

#[tokio::test]
async fn missing_rights_are_found() {
    for (file_mode, directory_mode, says) in [
        (0o666, 0o555, "may make no files"),
        (0o444, 0o777, "may not read and write"),
    ] {
        let directory = directory();
        let (url, file) = place(&directory);
        sql(&file, "PRAGMA journal_mode = WAL").await;
        let set = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
        };
        set(&file, file_mode);
        set(directory.path(), directory_mode);
        let found = faults_by(as_nobody, &url);
        set(directory.path(), 0o755);
        assert_only(&found, "rights", says);
    }
}

/// No mode keeps root out.
fn as_nobody(command: &mut Command) {
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
}

#[tokio::test]
async fn a_file_that_others_keep_locked_cannot_be_looked_at() {
    let directory = directory();
    let (url, file) = place(&directory);
    let mut other = connect(&file).await;
    other
        .execute("CREATE TABLE others (a INTEGER); BEGIN EXCLUSIVE")
        .await
        .expect("it is free");
    let error = refusal(&format!("{url}?busy-timeout=100ms")).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
