//! A client that connects again and gets another session without a word.

use lock_core::{DistributedLock, Wait};

use crate::support::exchange::Exchange;
use crate::support::{Place, SESSION, SOON, config, ms, open, request, take};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_in_an_exchanged_session_is_deleted() {
    let place = Place::new().await;
    let exchange = Exchange::before(place.port());
    let session = SESSION * 2;
    let config = config(&[exchange.port()], place.root()).with_session_timeout(session);
    let locks = open(config.expect("it is in range")).await;
    // A lock keeps its session, and the client of it, for as long as its guard is there.
    let pinned = take(&locks, "pinned").await;
    exchange.cut();
    let one = request("a").with_wait(Wait::AtMost(SOON * 2));
    let guard = locks.acquire(&one).await.expect("it is granted");
    assert_eq!(place.tree().nodes("a").await.len(), 1);
    guard.release().await.expect("it is released");
    tokio::time::sleep(ms(200)).await;
    place.assert_nothing_left(&[&locks], "a").await;
    drop(pinned);
}
