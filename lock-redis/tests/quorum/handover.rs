//! A lock that passes from task to task inside a process.

use std::sync::Arc;

use lock_core::DistributedLock;
use lock_core::layers::LocalQueue;

use super::support::{SOON, client, ms, release, request, start, take, token, within};

/// More often than the first block of tokens allows, with a node down.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_set_aside_on_a_majority() {
    let nodes = start(3);
    let queue = LocalQueue::new(client(&nodes).await).with_max_handovers(100);
    let queue = Arc::new(queue);
    let holder = || nodes[1].command(&["GET", "a"]).text().expect("it is held");
    let request = within(request("a"), SOON);
    let mut guard = queue.acquire(&request).await.expect("it is free");
    let (first, mut last) = (holder(), token(&guard));
    nodes[2].kill();
    for _ in 0..80 {
        let (next, request) = (Arc::clone(&queue), request.clone());
        let waiting = tokio::spawn(async move { next.acquire(&request).await });
        tokio::time::sleep(ms(2)).await;
        release(guard).await;
        guard = waiting.await.expect("no panic").expect("it is handed over");
        assert!(token(&guard) > last, "{} after {last}", token(&guard));
        last = token(&guard);
    }
    assert_eq!(&holder()[..32], &first[..32], "the same lease all the time");
    release(guard).await;
    nodes[0].stop();
    nodes[2].restart();
    let after = take(&*client(&nodes).await, "a").await;
    assert!(token(&after) > last, "{} after {last}", token(&after));
    nodes[0].resume();
}
