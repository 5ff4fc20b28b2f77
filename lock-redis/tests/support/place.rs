use std::sync::Arc;
use std::time::Duration;

use lock_testkit::harness::Look;
use lock_testkit::proxy::{Across, FaultPlan, Proxy};
use lock_testkit::servers::{RedisOptions, RedisServer, Reply};
use polylock_core::memory::{Fault, Request};
use polylock_core::{AcquireRequest, DistributedLock, LockGuard, LockKey, Result};
use polylock_redis::{Redis, RedisConfig};
use tokio::task::JoinHandle;

use super::requests::{kind_of, load_scripts};
use super::{SOON, attempt, idle, of, open, until, waiting};

/// A server of its own with a proxy before it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) server: RedisServer,
    faults: FaultPlan,
}

/// Short enough for several attempts within the shortest lease.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(400);

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(RedisOptions::new())
    }

    pub(crate) fn with(options: RedisOptions) -> Self {
        let server = RedisServer::start(options);
        load_scripts(&server);
        let proxies = vec![Proxy::start(server.port())];
        let faults = FaultPlan::new(proxies, Across::Any, kind_of);
        Self { server, faults }
    }

    /// A server with a client behind the proxy, and one that the proxy does not disturb.
    pub(crate) async fn with_clients() -> (Self, Arc<Redis>, Arc<Redis>) {
        let place = Self::new();
        let (client, elsewhere) = (place.client().await, place.elsewhere().await);
        (place, client, elsewhere)
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        &self.faults.proxies()[0]
    }

    pub(crate) fn faults(&self) -> &FaultPlan {
        &self.faults
    }

    pub(crate) fn plan(&self, request: Request, fault: Fault) {
        self.faults.plan(request, fault);
    }

    /// The way through the proxy.
    pub(crate) fn config(&self) -> RedisConfig {
        let config = RedisConfig::new("127.0.0.1", self.proxy().port());
        config.with_timeout(TIMEOUT).expect("it is in range")
    }

    /// The way past the proxy.
    pub(crate) fn direct(&self) -> RedisConfig {
        of(&self.server)
    }

    /// A client behind the proxy.
    pub(crate) async fn client(&self) -> Arc<Redis> {
        open(self.config()).await
    }

    /// A client behind the proxy whose requests do not time out on a busy machine.
    pub(crate) async fn patient_client(&self) -> Arc<Redis> {
        let config = self.config().with_timeout(SOON).expect("it is in range");
        let config = config.with_connect_timeout(SOON);
        open(config.expect("it is in range")).await
    }

    /// A client that the proxy does not disturb.
    pub(crate) async fn elsewhere(&self) -> Arc<Redis> {
        open(self.direct()).await
    }

    pub(crate) fn command(&self, words: &[&str]) -> Reply {
        self.server.command(words)
    }

    pub(crate) fn number(&self, words: &[&str]) -> i64 {
        let reply = self.command(words);
        reply
            .integer()
            .unwrap_or_else(|| panic!("{words:?}: {reply:?}"))
    }

    pub(crate) fn look(&self, key: &LockKey) -> Look {
        look(&self.server, key.as_str())
    }

    pub(crate) fn waiters(&self, name: &str) -> usize {
        look(&self.server, name).waiters
    }

    /// Lets a task wait for a lock, and gives it once it is in the queue.
    pub(crate) async fn waiter(
        &self,
        locks: &Arc<Redis>,
        request: AcquireRequest,
    ) -> JoinHandle<Result<LockGuard>> {
        let key = request.key().clone();
        let before = self.waiters(key.as_str());
        let waiter = waiting(locks, request);
        self.queued(key.as_str(), before + 1).await;
        waiter
    }

    pub(crate) async fn queued(&self, name: &str, count: usize) {
        until("they wait", || self.waiters(name) == count).await;
    }

    /// The keys of a lock on the server. Not included are the counter, and the empty queue and the notes of
    /// broken locks, which expire.
    pub(crate) fn remains(&self, name: &str) -> Vec<String> {
        let mut remains = Vec::new();
        if self.number(&["EXISTS", name]) == 1 {
            remains.push(format!("LOCK {:?}", self.command(&["GET", name])));
        }
        let queue = format!("{{{name}}}:waiters");
        if self.number(&["XLEN", &queue]) > 0 {
            let entries = self.command(&["XRANGE", &queue, "-", "+"]);
            remains.push(format!("QUEUE {entries:?}"));
        }
        if self.number(&["EXISTS", &queue]) == 1 && self.number(&["PTTL", &queue]) < 0 {
            remains.push("QUEUE forever".to_owned());
        }
        let notes = format!("{{{name}}}:notes");
        for field in self.command(&["HKEYS", &notes]).items() {
            let field = field.text().unwrap_or_default();
            if !field.starts_with("b:") {
                remains.push(format!("NOTES {field}"));
            }
        }
        if self.number(&["EXISTS", &notes]) == 1 && self.number(&["PTTL", &notes]) < 0 {
            remains.push("NOTES forever".to_owned());
        }
        remains
    }

    /// Waits until the clients have nothing more to do, and asserts that nothing is left of a lock.
    pub(crate) async fn assert_nothing_left(&self, clients: &[&Arc<Redis>], name: &str) {
        for client in clients {
            idle(client).await;
        }
        let remains = self.remains(name);
        assert!(remains.is_empty(), "{remains:?}");
    }

    /// Asserts that another client gets the lock with one attempt.
    pub(crate) async fn assert_free(&self, name: &str) {
        let request = attempt(name);
        let guard = self.elsewhere().await.acquire(&request).await;
        let guard = guard.expect("it is not free");
        guard.release().await.expect("it is released");
    }
}

/// The server's data of a lock, read past the clients.
pub(crate) fn look(server: &RedisServer, name: &str) -> Look {
    let count = |words: &[&str]| match server.command(words) {
        Reply::Integer(count) => usize::try_from(count).expect("a number"),
        reply => panic!("{words:?}: {reply:?}"),
    };
    let waiters = count(&["XLEN", &format!("{{{name}}}:waiters")]);
    let kind = server.command(&["TYPE", name]).text();
    let holders = match kind.as_deref() {
        // Without the mark of the mode.
        Some("zset") => count(&["ZCARD", name]).saturating_sub(1),
        _ => count(&["EXISTS", name]),
    };
    Look::new(holders, waiters)
}
