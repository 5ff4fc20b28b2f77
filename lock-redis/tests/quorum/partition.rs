//! Clients that see different majorities.

use std::sync::Arc;

use futures_util::future::join_all;
use lock_testkit::history::{Checker, Recorder};
use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::RedisNodes;
use polylock_core::{DistributedLock, ErrorKind};
use polylock_redis::Redlock;
use tokio::task::JoinSet;

use super::nodes::{PATIENT, config, open};
use super::support::{SOON, client, ms, once, release, request, start, take, within};

/// A client with a proxy before each node.
struct ProxiedClient {
    locks: Arc<Redlock>,
    proxies: Vec<Proxy>,
}

impl ProxiedClient {
    async fn before(nodes: &RedisNodes) -> Self {
        let proxies: Vec<_> = nodes.iter().map(|node| Proxy::start(node.port())).collect();
        let locks = open(config(proxies.iter().map(Proxy::port), PATIENT)).await;
        Self { locks, proxies }
    }

    /// Cuts the client off from some nodes, and from no others.
    fn see_all_but(&self, hidden: &[usize]) {
        for (node, proxy) in self.proxies.iter().enumerate() {
            if hidden.contains(&node) {
                proxy.refuse();
                proxy.cut();
            } else {
                proxy.accept();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_see_different_majorities_exclude_each_other() {
    let nodes = start(5);
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(ProxiedClient::before(&nodes).await);
    }
    let recorder = Recorder::new();
    for phase in 0..3 {
        for (n, client) in clients.iter().enumerate() {
            client.see_all_but(&[(n + phase) % 5, (n + 2 * phase + 1) % 5]);
        }
        let mut tasks = JoinSet::new();
        for client in &clients {
            let (locks, recorder) = (Arc::clone(&client.locks), recorder.clone());
            let locks: Arc<dyn DistributedLock> = locks;
            tasks.spawn(async move {
                for _ in 0..4 {
                    let request = within(request("a"), SOON * 4);
                    let held = recorder.acquire(&locks, &request).await;
                    let held = held.expect("there is progress");
                    tokio::time::sleep(ms(3)).await;
                    drop(held.release().await);
                }
            });
        }
        tasks.join_all().await;
    }
    let summary = Checker::new().check(&recorder.events()).assert_clean();
    assert_eq!(summary.grants, 60);
    for client in &clients {
        let is_idle = client.locks.shutdown(SOON).await;
        assert!(is_idle, "background work does not end");
    }
    release(take(&*client(&nodes).await, "a").await).await;
}

/// Each client is near another node, which votes for it and refuses the others.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_clients_that_try_at_once_gets_the_lock() {
    let nodes = start(3);
    // The nodes know the scripts then.
    release(take(&*client(&nodes).await, "b").await).await;
    let mut clients = Vec::new();
    for near in 0..3 {
        let client = ProxiedClient::before(&nodes).await;
        for (node, proxy) in client.proxies.iter().enumerate() {
            if node != near {
                proxy.set_latency(Direction::Both, ms(20));
            }
        }
        clients.push(client);
    }
    let request = once(request("a"));
    let tries = join_all(clients.iter().map(|client| client.locks.acquire(&request))).await;
    let mut guards = Vec::new();
    for tried in tries {
        match tried {
            Ok(guard) => guards.push(guard),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Contended, "{error}"),
        }
    }
    assert_eq!(guards.len(), 1, "clients that have the lock");
    for guard in guards {
        release(guard).await;
    }
    for client in &clients {
        let is_idle = client.locks.shutdown(SOON).await;
        assert!(is_idle, "background work does not end");
    }
}
