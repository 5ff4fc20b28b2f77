//! A lock that passes from task to task inside a process.

use std::sync::Arc;

use polylock_core::layers::LocalQueue;
use tokio::sync::mpsc;

use super::support::{
    SOON, acquire, all_voted, client, ms, release, request, start, take, token, within,
};

/// More often than the first block of tokens allows, with a node down.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_set_aside_on_a_majority() {
    let nodes = start(3);
    let queue = LocalQueue::new(client(&nodes).await).with_max_handovers(100);
    let queue = Arc::new(queue);
    let id = || nodes[1].command(&["GET", "a"]).text().expect("it is held")[..32].to_owned();
    let request = within(request("a"), SOON * 2);
    let guard = acquire(&queue, &request).await;
    all_voted(&nodes, "a").await;
    let (first, mut last) = (id(), token(&guard));
    nodes[2].kill();
    let (served, mut holders) = mpsc::unbounded_channel();
    for _ in 0..80 {
        let (queue, request) = (Arc::clone(&queue), request.clone());
        let served = served.clone();
        tokio::spawn(async move {
            let guard = acquire(&queue, &request).await;
            served.send(guard).expect("the test listens");
        });
    }
    tokio::time::sleep(ms(200)).await;
    release(guard).await;
    for _ in 0..80 {
        let guard = holders.recv().await.expect("all are served");
        assert!(token(&guard) > last, "{} after {last}", token(&guard));
        assert_eq!(id(), first, "the same lease all the time");
        last = token(&guard);
        release(guard).await;
    }
    nodes[2].restart();
    nodes[0].stop();
    let after = take(&*client(&nodes).await, "a").await;
    assert!(token(&after) > last, "{} after {last}", token(&after));
    nodes[0].resume();
}
