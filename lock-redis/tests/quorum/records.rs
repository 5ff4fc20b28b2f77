//! The record of a key on nodes of which some have missed it.

use polylock_core::admin::Record;
use polylock_core::{DistributedLock, ErrorKind, FencingToken, LockKey};

use super::support::{SOON, client, start};

const AT: &str = "{a}:record";

#[tokio::test(flavor = "multi_thread")]
async fn every_majority_shows_the_record_that_was_stored_last() {
    let nodes = start(3);
    let locks = client(&nodes).await;
    let (admin, key) = (locks.admin().expect("it has one"), LockKey::new("a"));
    let key = key.expect("it is a key");
    let record = |token, text: &str| Record::new(FencingToken::new(token), text);
    let write = async |record| admin.write_record(&key, &record, SOON * 6).await;
    let [first, second] = ["first", "second"].map(|text| record(5, text));
    assert!(write(first).await.expect("a majority stores it"));
    let missed = nodes[0].command(&["GET", AT]).text().expect("a record");
    assert!(write(second.clone()).await.expect("a majority stores it"));
    // One node has missed the second one, which has the same token.
    nodes[0].command(&["SET", AT, &missed]);
    nodes[1].kill();
    let found = admin.record(&key).await.expect("a majority answers");
    assert_eq!(found.as_ref(), Some(&second));
    assert!(!write(record(4, "late")).await.expect("a majority answers"));
    assert!(
        write(record(6, "third"))
            .await
            .expect("a majority stores it")
    );
    // One node has a record of which no majority knows, another has none.
    let third = nodes[0].command(&["GET", AT]).text().expect("a record");
    let unknown = third.replacen('6', "7", 1);
    nodes[2].command(&["SET", AT, &unknown]);
    nodes[0].command(&["DEL", AT]);
    let error = write(record(6, "fourth")).await.expect_err("they differ");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    nodes[2].kill();
    let error = admin.record(&key).await.expect_err("one of three answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
