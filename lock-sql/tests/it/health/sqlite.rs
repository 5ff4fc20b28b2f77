use std::fs;

use crate::health::support::{assert_clean, assert_only, check_health, faults};
use crate::support::Place;

#[tokio::test]
async fn a_file_on_a_disk_has_no_fault_and_one_that_is_not_there_is_not_made() {
    let place = Place::on_disk();
    let file = place.database();
    for path in [&file, &place.file("a/b/locks.db")] {
        let url = format!("sqlite:{}?create-dir=on", path.display());
        assert_clean(&check_health(&url).await, &["filesystem"]);
    }
    let files = fs::read_dir(place.directory.path()).expect("it is there");
    assert_eq!(files.count(), 0);
    let _locks = place.open().await;
    let url = format!("sqlite:{}", file.display());
    assert_clean(&check_health(&url).await, &["filesystem"]);
}

#[tokio::test]
async fn a_file_system_in_memory_is_found() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("it takes directories");
    let place = Place { directory };
    let url = format!("sqlite:{}", place.database().display());
    assert_only(&faults(&url).await, "filesystem", "in memory");
    drop(place.open().await);
    assert_only(&faults(&url).await, "filesystem", "in memory");
}
