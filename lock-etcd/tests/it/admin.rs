//! Breaking locks.

use polylock_core::admin::LockInfo;
use polylock_core::{Label, LockGuard};

use crate::support::{Place, acquire, admin, granted, is_release, key, release, request};

/// Breaks the lock `a` of its holder, which releases it before its key is deleted. Returns what was broken.
async fn released_before(place: &Place, guard: LockGuard) -> Option<LockInfo> {
    let other = place.counted().await;
    place.counter().hold(is_release);
    let name = key("a");
    let breaking = admin(&other).break_lock(&name, "it hangs");
    let releasing = async {
        place.held().await;
        release(guard).await;
        place.counter().pass();
    };
    let (broken, ()) = tokio::join!(breaking, releasing);
    broken.expect("it answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_releases_meanwhile_is_not_said_to_be_broken() {
    let place = Place::new().await;
    let locks = place.client().await;
    let guard = acquire(&locks, "a").await;
    assert_eq!(released_before(&place, guard).await, None);
    // The next holder is broken in its place.
    let guard = acquire(&locks, "a").await;
    let label = Label::of_this_process().with_note("next");
    let waiter = place.waiter(&locks, request("a").with_label(label)).await;
    let broken = released_before(&place, guard).await;
    let broken = broken.expect("it was held");
    let notes: Vec<_> = broken.holders.iter().map(|h| h.label.note()).collect();
    assert_eq!(notes, ["next"]);
    // It may have been broken before it was granted the lock, and is granted another one then.
    drop(granted(waiter).await);
}
