//! Nodes of contenders that an operator deletes as soon as they appear.

use std::sync::Arc;

use lock_testkit::proxy::{Command, Fate};
use polylock_core::{DistributedLock, ErrorKind, Wait};
use polylock_zk::ZooKeeper;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::{Place, SOON, ms, open, request, take, waiting, within};

/// A client that lists the queue 400 ms after it has made its node: time enough to delete that, also on a busy machine.
async fn slow(place: &Place) -> Arc<ZooKeeper> {
    let config = place.config().with_session_timeout(SOON * 2);
    let config = config.and_then(|config| config.with_timeout(ms(1_000)));
    let locks = open(config.expect("it is in range")).await;
    drop(take(&locks, "a").await);
    place.assert_nothing_left(&[&locks], "a").await;
    let is_list = |command: &Command| command.is("GETCHILDREN") && !command.has("watch");
    place.proxy().plan_each(is_list, Fate::LateRequest(ms(400)));
    locks
}

/// Deletes all nodes but one.
fn deleting(place: &Place, but: Option<String>) -> JoinHandle<()> {
    let tree = place.tree().clone();
    tokio::spawn(async move {
        loop {
            for node in tree.nodes("a").await {
                if Some(&node) != but.as_ref() {
                    tree.delete("a", &node).await;
                }
            }
            sleep(ms(10)).await;
        }
    })
}

#[tokio::test]
async fn a_request_that_has_seen_no_holder_does_not_say_that_the_lock_is_held() {
    let place = Place::new().await;
    let locks = slow(&place).await;
    let deleting = deleting(&place, None);
    for wait in [Wait::Never, Wait::AtMost(ms(1_000))] {
        let began = Instant::now();
        let one = request("a").with_wait(wait);
        let error = locks.acquire(&one).await.expect_err("its nodes are gone");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{wait:?}: {error}");
        let took = began.elapsed();
        assert!(took >= ms(900) && took < SOON, "{wait:?} took {took:?}");
    }
    deleting.abort();
    place.proxy().clear();
    place.assert_free("a").await;
}

#[tokio::test]
async fn who_has_seen_a_holder_says_that_the_lock_is_held() {
    let place = Place::new().await;
    let (locks, other) = (slow(&place).await, place.elsewhere().await);
    let holder = take(&other, "a").await;
    let node = place.tree().nodes("a").await.remove(0);
    let one = within("a", ms(2_000));
    let waiter = waiting(&locks, one);
    place.contenders("a", 2).await;
    sleep(ms(1_000)).await;
    let deleting = deleting(&place, Some(node));
    let error = waiter.await.expect("no panic").expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    deleting.abort();
    assert!(holder.is_held());
}
