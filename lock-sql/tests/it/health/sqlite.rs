use std::fs;

use polylock_sql::Sqlite;

use crate::health::support::{assert_clean, assert_only, check_health, faults};

#[tokio::test]
async fn a_file_on_a_disk_has_no_fault_and_one_that_is_not_there_is_not_made() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = directory.path().join("locks.db");
    for path in [&file, &directory.path().join("a/b/locks.db")] {
        let url = format!("sqlite:{}?create-dir=on", path.display());
        assert_clean(&check_health(&url).await, &["filesystem"]);
    }
    let files = fs::read_dir(directory.path()).expect("it is there");
    assert_eq!(files.count(), 0);
    let _locks = Sqlite::open(&file).await.expect("it starts");
    let url = format!("sqlite:{}", file.display());
    assert_clean(&check_health(&url).await, &["filesystem"]);
}

#[tokio::test]
async fn a_file_with_a_hard_link_is_found() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = directory.path().join("locks.db");
    drop(Sqlite::open(&file).await.expect("it starts"));
    let link = directory.path().join("link.db");
    fs::hard_link(&file, &link).expect("it is made");
    for name in [&file, &link] {
        let url = format!("sqlite:{}", name.display());
        assert_only(&faults(&url).await, "filesystem", "hard links");
    }
}

#[tokio::test]
async fn a_file_system_in_memory_is_found() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let file = directory.path().join("locks.db");
    let url = format!("sqlite:{}", file.display());
    assert_only(&faults(&url).await, "filesystem", "in memory");
    drop(Sqlite::open(&file).await.expect("it starts"));
    assert_only(&faults(&url).await, "filesystem", "in memory");
}
