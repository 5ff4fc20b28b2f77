//! Records that holders store beside their locks.

use polylock_core::admin::Record;
use polylock_core::{ErrorKind, FencingToken};
use polylock_zk::ZooKeeper;
use zookeeper_client::{Acls, CreateMode, Error};

use crate::support::{Place, SOON, admin, key, release, take};

async fn write(locks: &ZooKeeper, token: u64) -> Record {
    let record = Record::new(FencingToken::new(token), "done");
    let written = admin(locks).write_record(&key("a"), &record, SOON).await;
    assert!(written.expect("it is stored"));
    record
}

async fn read(locks: &ZooKeeper) -> Option<Record> {
    let found = admin(locks).record(&key("a")).await;
    found.expect("it answers")
}

/// A container with a node in it would stay.
#[tokio::test]
async fn a_record_keeps_no_directory_of_a_lock() {
    let place = Place::new().await;
    let locks = place.client().await;
    let record = write(&locks, 1).await;
    release(take(&locks, "a").await).await;
    let path = place.tree().directory("a");
    match place.tree().client().delete(&path, None).await {
        // ZooKeeper was faster.
        Ok(()) | Err(Error::NoNode) => {}
        Err(error) => panic!("{error}"),
    }
    assert_eq!(read(&locks).await, Some(record));
}

#[tokio::test]
async fn a_record_whose_root_was_deleted_is_gone_and_written_anew() {
    let place = Place::new().await;
    let locks = place.client().await;
    write(&locks, 2).await;
    for path in ["/=a", ""] {
        let path = format!("{}{path}", place.root());
        let deleted = place.tree().client().delete(&path, None).await;
        deleted.expect("it is there");
    }
    assert_eq!(read(&locks).await, None);
    let record = write(&locks, 1).await;
    assert_eq!(read(&locks).await, Some(record));
}

#[tokio::test]
async fn a_node_of_another_program_is_no_record_and_stays() {
    let place = Place::new().await;
    let locks = place.client().await;
    let directory = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let client = place.tree().client();
    let path = place.tree().directory("=a");
    for data in ["", "theirs", "1.5\n"] {
        let created = client.create(&path, data.as_bytes(), &directory).await;
        created.expect("it is created");
        let record = Record::new(FencingToken::new(1), "ours");
        let read = admin(&locks).record(&key("a")).await.map(drop);
        let written = admin(&locks).write_record(&key("a"), &record, SOON).await;
        for answer in [read, written.map(drop)] {
            let error = answer.expect_err("it is none");
            assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
            assert!(!error.is_outcome_unknown(), "{error:?}");
        }
        let (found, _) = client.get_data(&path).await.expect("it is there");
        assert_eq!(found, data.as_bytes());
        client.delete(&path, None).await.expect("it is there");
    }
}
