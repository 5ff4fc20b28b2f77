//! Requests of free locks are written by the threads that make them.

use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use lock_testkit::{BusyEngine, polled_once};
use polylock_core::DistributedLock;

use crate::server::support::{Site, everywhere, ms, request, take_and_release};

/// The output of a future, and whether the server had its statement while the engine did nothing.
async fn sent_past_the_engine<F: Future>(site: &Site, future: F) -> (F::Output, bool) {
    // What is under way, such as the record of a holder, comes to its end.
    tokio::time::sleep(ms(100)).await;
    let busy = BusyEngine::start();
    tokio::time::sleep(ms(50)).await;
    let before = site.last_statement().await;
    let mut future = pin!(future);
    let answered = polled_once(future.as_mut()).await;
    let deadline = Instant::now() + ms(1_000);
    let mut is_sent = false;
    while !is_sent && Instant::now() < deadline {
        is_sent = site.last_statement().await > before;
    }
    drop(busy);
    let output = match answered {
        // The server was quick.
        Poll::Ready(output) => output,
        Poll::Pending => future.await,
    };
    (output, is_sent)
}

async fn a_request_does_not_wait_for_the_engine(site: Site) {
    let locks = site.open().await;
    take_and_release(&locks, "a").await;
    let request = request("a");
    let (mut acquisitions, mut releases) = (0, 0);
    // On a busy machine a session may not be ready yet, and another one is made, by the engine.
    for _ in 0..10 {
        let (acquired, is_sent) = sent_past_the_engine(&site, locks.acquire(&request)).await;
        acquisitions += u32::from(is_sent);
        let guard = acquired.expect("a free lock is granted");
        let (released, is_sent) = sent_past_the_engine(&site, guard.release()).await;
        releases += u32::from(is_sent);
        released.expect("it is released");
        if acquisitions > 0 && releases > 0 {
            return;
        }
    }
    panic!("of ten, {acquisitions} acquisitions and {releases} releases were sent");
}
everywhere!(a_request_does_not_wait_for_the_engine);
