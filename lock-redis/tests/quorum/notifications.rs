//! Notifications of broken locks.

use polylock_core::Mode;

use super::support::{all_voted, client, start, until};
use crate::told::{assert_told, hears, held};

#[tokio::test(flavor = "multi_thread")]
async fn a_break_reaches_the_holder_at_once_while_nodes_hang() {
    let (nodes, down) = (start(5), [0, 3]);
    let (locks, operator) = (client(&nodes).await, client(&nodes).await);
    let stop = || down.iter().for_each(|node| nodes[*node].stop());
    assert_told([&*locks, &*operator], || nodes.iter().all(hears), stop).await;
    down.iter().for_each(|node| nodes[*node].resume());
}

/// One of three nodes has broken the lock, as if the others were unreachable.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_publishes_costs_no_lock() {
    let nodes = start(3);
    let locks = client(&nodes).await;
    let guard = held(&*locks, "a", Mode::Exclusive).await;
    until("the client listens", || nodes.iter().all(hears)).await;
    all_voted(&nodes, "a").await;
    let value = nodes[1].command(&["GET", "a"]).text().expect("it is held");
    nodes[1].command(&["DEL", "a"]);
    let message = format!("broken|{}", &value[..32]);
    nodes[0].command(&["PEXPIRE", "a", "60000"]);
    until("the lease is renewed", || {
        nodes[1].command(&["PUBLISH", "polylock:broken", &message]);
        nodes[0].command(&["PTTL", "a"]).integer() > Some(60_000)
    })
    .await;
    assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
}
