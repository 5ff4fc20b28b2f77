//! The documented list of rights has all rights that a user needs, and no more.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use lock_testkit::servers::RedisOptions;
use polylock_core::admin::Record;
use polylock_core::layers::LocalQueue;
use polylock_core::{DistributedLock, Mode, Released};
use polylock_redis::Redis;

use crate::support::rights::{self, CHECKS, COMMANDS, LIST};
use crate::support::{
    Place, SOON, TTL, acquire, any_id, granted, key, lease, loss, open, release, release_lost,
    request, take, until, waiting, within,
};

const NAME: &str = "lock:a";

/// Everything that a program does with locks.
async fn everything(place: &Place) {
    let config = || place.config().with_login("locks", "secret");
    let (locks, other) = (open(config()).await, open(config()).await);
    let guard = take(&locks, NAME).await;
    let next = waiting(&other, within(request(NAME), SOON));
    place.queued(NAME, 1).await;
    guard.renew().await.expect("it is renewed");
    guard.release().await.expect("it is released");
    release(granted(next).await).await;
    for mode in [
        Mode::Shared,
        Mode::Permit {
            limit: NonZeroU32::MIN.saturating_add(1),
        },
    ] {
        let several = within(request(NAME).with_mode(mode), SOON);
        let first = acquire(&locks, &several).await;
        let second = acquire(&other, &several).await;
        let writer = waiting(&other, within(request(NAME), SOON));
        place.queued(NAME, 1).await;
        first.renew().await.expect("it is renewed");
        first.release().await.expect("it is released");
        second.release().await.expect("it is released");
        release(granted(writer).await).await;
    }
    let mut guard = take(&locks, NAME).await;
    guard.downgrade().await.expect("it is downgraded");
    guard.release().await.expect("it is released");
    // A hand-over inside the process.
    let below: Arc<dyn DistributedLock> = Arc::<Redis>::clone(&locks);
    let queue = Arc::new(LocalQueue::new(below));
    let one = within(request(NAME), SOON);
    let guard = acquire(&queue, &one).await;
    let next = {
        let (queue, one) = (Arc::clone(&queue), one.clone());
        tokio::spawn(async move { queue.acquire(&one).await })
    };
    tokio::time::sleep(TTL / 10).await;
    guard.release().await.expect("it is released");
    release(granted(next).await).await;
    // A record, and a lease that another client adopts.
    let admin = locks.admin().expect("it has an administration");
    let guard = take(&locks, NAME).await;
    let token = guard.fencing_token().expect("it has a token");
    let record = Record::new(token, "done");
    let written = admin.write_record(&key(NAME), &record, SOON).await;
    assert!(written.expect("it is stored"));
    let found = admin.record(&key(NAME)).await.expect("it is read");
    assert_eq!(found, Some(record));
    let (id, new) = (guard.lease_id().expect("a lease"), any_id());
    let adopted = admin.adopt_lease(&key(NAME), id, new, TTL).await;
    assert!(adopted.expect("it is adopted") > Some(token));
    let released = admin.release_lease(&key(NAME), new).await;
    assert_eq!(released.expect("it is released"), Released::Clean);
    release_lost(guard).await;
    // Tokens that are ahead of the clock.
    place.command(&["XADD", "{lock}:tokens", "9999999999999-0", "t", ""]);
    // Readers whose leases end, and others after them.
    let reader = lease(NAME).with_mode(Mode::Shared);
    let expired = acquire(&locks, &reader).await;
    until("its lease ends", || place.number(&["EXISTS", NAME]) == 0).await;
    drop(expired);
    let next = other.acquire(&within(reader, SOON)).await;
    next.expect("granted").release().await.expect("released");
    // A waiter that is not heard of once only.
    let guard = take(&locks, NAME).await;
    let next = waiting(&other, within(request(NAME), SOON));
    tokio::time::sleep(TTL / 2).await;
    guard.release().await.expect("it is released");
    release(granted(next).await).await;
    // An administrator breaks the lock of a holder with a waiter.
    let guard = take(&locks, NAME).await;
    let next = waiting(&other, within(request(NAME), SOON));
    place.queued(NAME, 1).await;
    assert_eq!(admin.list("lock:").await.expect("it is listed").len(), 1);
    admin
        .inspect(&key(NAME))
        .await
        .expect("it is shown")
        .expect("it is held");
    admin
        .break_lock(&key(NAME), "test")
        .await
        .expect("it is broken")
        .expect("it was held");
    loss(&guard).await;
    release(granted(next).await).await;
    // A release that comes too late.
    let guard = acquire(&locks, &lease(NAME)).await;
    place.command(&["DEL", NAME]);
    release_lost(guard).await;
}

fn words(list: &str) -> BTreeSet<String> {
    list.split_whitespace()
        .map(|word| word.trim_start_matches('+').to_owned())
        .collect()
}

#[tokio::test]
async fn the_list_of_rights_is_complete_and_has_no_more() {
    let rules = rights::user("secret", "lock:*");
    let place = Place::with(RedisOptions::new().with_user("locks", &rules));
    place.command(&["CONFIG", "RESETSTAT"]);
    place.command(&["ACL", "LOG", "RESET"]);
    everything(&place).await;
    let stats = place
        .command(&["INFO", "commandstats"])
        .text()
        .expect("a text");
    let used: BTreeSet<String> = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .filter(|(_, calls)| !calls.starts_with("0,"))
        .map(|(name, _)| name.to_owned())
        // Those of the test itself.
        .filter(|name| {
            ![
                "acl|log",
                "auth",
                "config|resetstat",
                "exists",
                "type",
                "xinfo|stream",
                "xlen",
            ]
            .contains(&name.as_str())
        })
        .collect();
    let listed: BTreeSet<_> = [COMMANDS, LIST, CHECKS]
        .into_iter()
        .flat_map(words)
        .collect();
    assert_eq!(used, listed);
    // The client works without the commands that it is denied.
    let denied = format!("{:?}", place.command(&["ACL", "LOG"]));
    assert!(
        !denied.contains("context") || denied.contains("client|setinfo"),
        "{denied}"
    );
}
