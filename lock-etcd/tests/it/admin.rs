//! Breaking locks.

use etcd_client::{Txn, TxnOp};
use polylock_core::admin::{LockInfo, Record};
use polylock_core::memory::{Fault, Request};
use polylock_core::{DistributedLock, ErrorKind, Label, LockGuard, Mode};

use crate::support::{
    Place, acquire, admin, granted, is_read, is_release, key, ms, release, request, until,
};

/// Breaks the lock `a` of its holder, which releases it before its key is deleted. Returns what was broken, or
/// `None` if a request was repeated: on a busy machine a deletion may have no reply in its time.
async fn released_before(place: &Place, guard: LockGuard) -> Option<Option<LockInfo>> {
    let other = place.counted().await;
    let requests = || place.counter().order(is_read, is_release);
    let begun = requests().len();
    place.counter().hold(is_release);
    let name = key("a");
    let breaking = admin(&other).break_lock(&name, "it hangs");
    let releasing = async {
        place.held().await;
        release(guard).await;
        place.counter().pass();
    };
    let (broken, ()) = tokio::join!(breaking, releasing);
    // It lists, deletes, and lists again if the key was gone.
    let is_repeated = requests()[begun..].windows(2).any(|two| two[0] == two[1]);
    (!is_repeated).then(|| broken.expect("it answers"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_releases_meanwhile_is_not_said_to_be_broken() {
    let place = Place::new().await;
    let locks = place.client().await;
    until("no request is repeated", async || {
        let guard = acquire(&locks, "a").await;
        let broken = released_before(&place, guard).await;
        if let Some(broken) = &broken {
            assert_eq!(*broken, None);
        }
        broken.is_some()
    })
    .await;
    // The next holder is broken in its place.
    until("no request is repeated", async || {
        let guard = acquire(&locks, "a").await;
        let label = Label::of_this_process().with_note("next");
        let waiter = place.waiter(&locks, request("a").with_label(label)).await;
        let broken = released_before(&place, guard).await;
        if let Some(broken) = &broken {
            let broken = broken.as_ref().expect("it was held");
            let notes: Vec<_> = broken.holders.iter().map(|h| h.label.note()).collect();
            assert_eq!(notes, ["next"]);
        }
        // It may have been broken before it was granted the lock, and is granted another one then.
        drop(granted(waiter).await);
        broken.is_some()
    })
    .await;
}

/// By the time that a deletion is refused, an earlier one has taken the lock from a holder: the same one, if the
/// reply is lost, or another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_break_that_fails_after_a_deletion_has_an_unknown_outcome() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.counted().await);
    place.counter().deny(is_release);
    let broken = async |name: &str| {
        let broken = admin(&*other).break_lock(&key(name), "it hangs").await;
        let error = broken.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        error
    };
    for (name, first) in [("a", Fault::LostReply), ("b", Fault::LateReply(ms(0)))] {
        let reader = request(name).with_mode(Mode::Shared);
        let mut readers = Vec::new();
        for _ in 0..2 {
            readers.push(locks.acquire(&reader).await.expect("it is shared"));
        }
        place.counter().plan(Request::Release, first);
        let error = broken(name).await;
        assert!(error.is_outcome_unknown(), "{error}");
        drop(readers);
    }
    // Without an earlier one the holder keeps the lock. On a busy machine the refusal may come too late.
    let guard = acquire(&locks, "c").await;
    until("the outcome is known", async || {
        !broken("c").await.is_outcome_unknown()
    })
    .await;
    release(guard).await;
}

/// Stores keys below the prefix of a client, each with a value of this length.
async fn put_all(place: &Place, names: impl Iterator<Item = String>, length: usize) {
    let mut client = place.tree().client();
    let value = "x".repeat(length);
    let put = |name| TxnOp::put(format!("{}/{name}", place.prefix()), value.as_str(), None);
    let puts: Vec<_> = names.map(put).collect();
    for puts in puts.chunks(100) {
        let written = client.txn(Txn::new().and_then(puts)).await;
        written.expect("they are written");
    }
}

/// A list reads the records beside the locks, a thousand keys in one reply.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_reads_past_many_long_records() {
    let place = Place::new().await;
    let locks = place.client().await;
    let guard = acquire(&locks, "a").await;
    let records = (0..1_000).map(|n| format!("={n:0100}"));
    put_all(&place, records, Record::MAX_LEN).await;
    let listed = admin(&*locks).list("").await.expect("it is listed");
    assert_eq!(listed.len(), 1);
    release(guard).await;
}

/// Later replies of a list are of the revision of its first one, which is compacted meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_overtaken_by_a_compaction_begins_again() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let guard = acquire(&locks, "a").await;
    put_all(&place, (0..1_000).map(|n| format!("=b{n}")), 0).await;
    let reads = || place.counter().seen(is_read);
    let begun = reads();
    place.counter().hold(is_read);
    let listing = admin(&*locks).list("");
    let compacting = async {
        place.held().await;
        place.counter().hold(is_read);
        place.counter().pass();
        until("it reads the second reply", async || reads() > begun + 1).await;
        place.held().await;
        let mut client = place.tree().client();
        let put = client.put(format!("{}/=c", place.prefix()), "", None).await;
        let revision = put
            .expect("it is written")
            .header()
            .expect("a header")
            .revision();
        let compacted = client.compact(revision, None).await;
        compacted.expect("it is compacted");
        place.counter().pass();
    };
    let (listed, ()) = tokio::join!(listing, compacting);
    assert_eq!(listed.expect("it is listed").len(), 1);
    release(guard).await;
}
