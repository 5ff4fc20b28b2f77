//! Records that holders store beside their locks.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::admin::Record;
use polylock_core::layers::Prefix;
use polylock_core::memory::Reachable;
use polylock_core::{DistributedLock, ErrorKind, FencingToken, LockKey};
use tokio::time::Instant;

use super::Case;
use super::admin::{broken, inspect, list};
use super::keys::hostile;
use super::need::admin;
use super::support::{When, answered, crowd, unavailable};

/// A record stays when its holder releases the lock, and when later ones do.
pub async fn a_record_outlives_its_holder(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let token = guard.fencing_token().expect("a holder has a token");
    let record = Record::new(token, "done up to page 7");
    assert!(write(&client, &key, &record).await);
    guard.release().await.expect("a held lock is released");
    assert_eq!(read(&other, &key).await.as_ref(), Some(&record));
    case.assert_free(&key).await;
    let _held = case.lock(&client, &key).await;
    assert!(broken(&other, &key).await.is_some());
    assert_eq!(read(&other, &key).await, Some(record));
}

/// The key need not be locked, and its record counts as no lock.
pub async fn a_record_is_no_lock(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    assert_eq!(read(&other, &key).await, None);
    let record = Record::new(FencingToken::new(7), "kept without end");
    let written = admin(&*client).write_record(&key, &record, Duration::MAX);
    assert!(written.await.expect("it is stored"));
    assert_eq!(inspect(&other, &key).await, None);
    assert_eq!(list(&other, case.prefix()).await, []);
    assert_eq!(broken(&other, &key).await, None);
    let guard = case.lock(&other, &key).await;
    let listed = list(&client, case.prefix()).await;
    let keys: Vec<_> = listed.iter().map(|info| &info.key).collect();
    assert_eq!(keys, [&key]);
    guard.release().await.expect("a held lock is released");
    assert_eq!(read(&other, &key).await, Some(record));
}

/// A record is replaced by a token that is not smaller. Tokens are compared as numbers, all 63 bits of them.
pub async fn a_smaller_token_replaces_no_record(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    let mut stored = None;
    let most = i64::MAX.unsigned_abs();
    for (token, text, is_stored) in [
        (9, "first", true),
        (10, "its successor", true),
        (9, "late", false),
        (10, "once more", true),
        (FLOAT + 1, "no float", true),
        (FLOAT, "late", false),
        (most, "last", true),
        (most - 1, "late", false),
    ] {
        let record = Record::new(FencingToken::new(token), text);
        assert_eq!(write(&client, &key, &record).await, is_stored, "{record:?}");
        if is_stored {
            stored = Some(record);
        }
        assert_eq!(read(&other, &key).await, stored);
    }
}

/// A record has any bytes, up to its limit, and one beyond it is refused.
pub async fn a_record_has_any_bytes_up_to_its_limit(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let token = FencingToken::new(7);
    let all: Vec<u8> = (0..=u8::MAX).cycle().take(Record::MAX_LEN).collect();
    for bytes in [Vec::new(), all.clone()] {
        let record = Record::new(token, bytes);
        assert!(write(&client, &key, &record).await);
        assert_eq!(read(&client, &key).await, Some(record));
    }
    let longer = Record::new(token, vec![0; Record::MAX_LEN + 1]);
    let refused = admin(&*client).write_record(&key, &longer, KEEP).await;
    let error = refused.expect_err("it is too long");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(!error.is_outcome_unknown(), "{error:?}");
    assert_eq!(read(&client, &key).await, Some(Record::new(token, all)));
}

/// A record is kept for as long as its last write asks for, at least.
pub async fn a_record_is_kept_for_its_time(case: Case) {
    let (client, short, long) = (case.client().await, case.key(), case.key());
    let keep = case.ttl();
    let record = Record::new(FencingToken::new(7), "for a moment");
    let began = Instant::now();
    for key in [&short, &long] {
        let written = admin(&*client).write_record(key, &record, keep).await;
        assert!(written.expect("it is stored"));
    }
    assert!(write(&client, &long, &record).await);
    while began.elapsed() < 2 * keep {
        let kept = read(&client, &short).await;
        let age = began.elapsed();
        // A backend may keep it until it is replaced.
        assert!(kept.is_some() || age >= keep.mul_f64(0.95), "for {age:?}");
        assert!(kept.is_none_or(|kept| kept == record));
        tokio::time::sleep(keep / 20).await;
    }
    assert_eq!(read(&client, &long).await, Some(record));
}

/// Each key has a record of its own, whatever its name.
pub async fn records_of_two_keys_do_not_meet(case: Case) {
    let (client, other) = (case.client().await, case.client().await);
    let record = |name: &str| Record::new(FencingToken::new(7), name);
    for name in hostile() {
        assert!(write(&client, &case.named(&name), &record(&name)).await);
    }
    for name in hostile() {
        let found = read(&other, &case.named(&name)).await;
        assert_eq!(found, Some(record(&name)));
    }
}

/// A namespace has records of its own.
pub async fn records_of_two_namespaces_do_not_meet(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let within = |namespace| {
        let inside = Prefix::new(Arc::clone(&client), namespace);
        inside.expect("it is a namespace")
    };
    let (shop, bank) = (within("shop"), within("bank"));
    let record = Record::new(FencingToken::new(7), "of the shop");
    assert!(write(&shop, &key, &record).await);
    assert_eq!(read(&bank, &key).await, None);
    assert_eq!(read(&client, &key).await, None);
    assert_eq!(read(&within("shop"), &key).await, Some(record));
}

/// Of records that are stored at the same time, the one with the largest token stays.
pub async fn the_record_of_the_largest_token_stays(case: Case) {
    let key = case.key();
    for round in 1..=5 {
        crowd(&case, 3, 4, |client, n| {
            let (key, token) = (key.clone(), FencingToken::new(12 * round + n as u64));
            async move {
                let record = Record::new(token, token.to_string());
                write(&client, &key, &record).await;
                let found = read(&client, &key).await.expect("one is stored");
                assert!(found.token >= token, "{found:?} after {record:?}");
            }
        })
        .await;
        let last = FencingToken::new(12 * round + 11);
        let record = Record::new(last, last.to_string());
        assert_eq!(read(&case.client().await, &key).await, Some(record));
    }
}

/// Storing a record that is dropped after its k-th poll leaves that record or the one before.
pub async fn a_write_dropped_after_each_poll_leaves_a_whole_record(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    let record = |n: usize| Record::new(FencingToken::new(n as u64), vec![n as u8; 2_000]);
    assert!(write(&client, &key, &record(0)).await);
    for polls in 1.. {
        let next = record(polls);
        let write = admin(&*client).write_record(&key, &next, KEEP);
        let answer = answered(polls, When::AtOnce, write).await;
        let found = read(&other, &key).await.expect("one is stored");
        assert_eq!(found, record(found.token.value() as usize));
        assert!(found.token <= next.token);
        if let Some(stored) = answer {
            assert!(stored.expect("it is stored"));
            assert_eq!(found, next);
            return;
        }
    }
}

/// A server that cannot be reached is an error, and not a missing record.
pub async fn an_unreachable_server_has_no_answer_about_records(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let record = Record::new(FencingToken::new(7), "before");
    assert!(write(&client, &key, &record).await);
    case.faults().set_reachable(Reachable::Cut);
    unavailable(admin(&*client).record(&key).await);
    unavailable(admin(&*client).write_record(&key, &record, KEEP).await);
    case.faults().set_reachable(Reachable::Connected);
}

/// Longer than any case takes.
const KEEP: Duration = Duration::from_secs(3_600);

/// Beyond it, a number of 64 bits with a point has not every whole number.
const FLOAT: u64 = 1 << 53;

async fn read(locks: &dyn DistributedLock, key: &LockKey) -> Option<Record> {
    let found = admin(locks).record(key).await;
    found.expect("a record can be read")
}

/// Whether the record was stored.
async fn write(locks: &dyn DistributedLock, key: &LockKey, record: &Record) -> bool {
    let stored = admin(locks).write_record(key, record, KEEP).await;
    stored.expect("a record can be stored")
}
