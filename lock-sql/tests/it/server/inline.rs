//! Requests of free locks are written by the threads that make them.

use std::pin::pin;
use std::task::Poll;

use lock_testkit::{BusyEngine, polled_once};
use polylock_core::DistributedLock;

use crate::server::support::{Site, everywhere, ms, request, take_and_release, until};

/// The output of a future whose statement the server has while the engine does nothing.
async fn sent_past_the_engine<F: Future>(site: &Site, future: F) -> F::Output {
    let busy = BusyEngine::start();
    // What was under way before has arrived by then.
    tokio::time::sleep(ms(50)).await;
    let before = site.last_statement().await;
    let mut future = pin!(future);
    let answered = polled_once(future.as_mut()).await;
    until("it is sent", async || site.last_statement().await > before).await;
    drop(busy);
    match answered {
        // The server was quick.
        Poll::Ready(output) => output,
        Poll::Pending => future.await,
    }
}

async fn a_request_does_not_wait_for_the_engine(site: Site) {
    let locks = site.open().await;
    take_and_release(&locks, "a").await;
    let request = request("a");
    let acquired = sent_past_the_engine(&site, locks.acquire(&request)).await;
    let guard = acquired.expect("a free lock is granted");
    let released = sent_past_the_engine(&site, guard.release()).await;
    released.expect("it is released");
}
everywhere!(a_request_does_not_wait_for_the_engine);
