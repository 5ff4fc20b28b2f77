//! The record of a key on nodes of which some have missed it.

use lock_testkit::harness::Harness;
use lock_testkit::proxy::{Fate, Then};
use polylock_core::admin::Record;
use polylock_core::{ErrorKind, FencingToken};

use super::nodes::Nodes;
use super::support::{SOON, client, start};
use crate::support::{admin, key};

const AT: &str = "{a}:record";

#[tokio::test(flavor = "multi_thread")]
async fn every_majority_shows_the_record_that_was_stored_last() {
    let nodes = start(3);
    let locks = client(&nodes).await;
    let (admin, key) = (admin(&locks), key("a"));
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
    assert!(error.message().contains("disagree"), "{error}");
    nodes[2].kill();
    let error = admin.record(&key).await.expect_err("one of three answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// A node has a larger version, of which the writer does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_stored_above_a_version_that_few_nodes_have() {
    let nodes = Nodes::behind_proxies(3);
    let locks = nodes.client().await;
    let (admin, key) = (admin(&locks), key("a"));
    let ahead = format!("{:020}|{:020}|first", 5, u64::MAX / 2);
    nodes.servers[0].command(&["SET", AT, &ahead]);
    let proxy = &nodes.faults.proxies()[0];
    let planned = proxy.plan(|command| command.is("GET"), Fate::LostReply(Then::Cut));
    let second = Record::new(FencingToken::new(5), "second");
    let written = admin.write_record(&key, &second, SOON * 6).await;
    assert!(written.expect("a majority stores it"));
    assert_eq!(planned.struck(), 1);
    for stored in nodes.each(&["GET", AT]) {
        let stored = stored.text().unwrap_or_default();
        assert!(stored.ends_with("|second"), "{stored:?}");
    }
}
