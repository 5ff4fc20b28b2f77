//! What only this backend has.

use custom_backend::{Files, FilesBackend};
use polylock_core::{DistributedLockExt, ErrorKind, Registry};

#[tokio::test]
async fn it_is_reached_by_its_scheme() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("files:{}", directory.path().display());
    let unknown = Registry::new().connect(&url).await.unwrap_err();
    let message = unknown.message();
    assert!(message.contains("unknown scheme \"files\""), "{unknown}");
    let registry = Registry::new().with(FilesBackend).unwrap();
    let (one, other) = (
        registry.connect(&url).await.unwrap(),
        registry.connect(&url).await.unwrap(),
    );
    let _held = one.try_lock("job").await.unwrap().unwrap();
    assert!(other.try_lock("job").await.unwrap().is_none());
}

#[tokio::test]
async fn a_lease_from_before_the_last_boot_is_over() {
    let directory = tempfile::tempdir().unwrap();
    // Token 41, a holder, an end that is far ahead, another boot.
    let line = format!("{:020} {:032x} {:020} {:0>36}\n", 41, 1, u64::MAX, "boot");
    std::fs::write(directory.path().join("6a6f62"), line).unwrap();
    let locks = Files::open(directory.path().into()).unwrap();
    let guard = locks.try_lock("job").await.unwrap().unwrap();
    assert_eq!(guard.fencing_token().map(u64::from), Some(42));
}

#[tokio::test]
async fn a_file_of_another_program_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("6a6f62");
    std::fs::write(&file, "a letter").unwrap();
    let locks = Files::open(directory.path().into()).unwrap();
    let error = locks.try_lock("job").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a letter");
}
