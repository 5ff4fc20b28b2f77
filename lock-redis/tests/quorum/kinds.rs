use std::collections::HashMap;

use lock_core::memory::Request;
use lock_core::{AcquireRequest, DistributedLock, LockKey};
use lock_redis::{RedisConfig, Redlock};
use lock_testkit::proxy::{Command, Proxy, Watch};

use crate::support::hash;

/// Which scripts are which requests.
#[derive(Debug, Default)]
pub(crate) struct Kinds(HashMap<String, Request>);

impl Kinds {
    /// Learns them from a client that does all of it, on nodes that know the scripts from then on:
    /// a fault that is planned meets a script that runs.
    pub(crate) async fn learn(proxies: &[Proxy], config: RedisConfig) -> Self {
        let seen: Vec<_> = proxies.iter().map(|proxy| proxy.watch(|_| true)).collect();
        let locks = Redlock::connect(config).await.expect("it connects");
        let key = LockKey::new("learn").expect("it is a key");
        let mut kinds = Self::default();
        let guard = locks.acquire(&AcquireRequest::new(key)).await;
        let guard = guard.expect("it is free");
        kinds.learn_from(&seen, Request::Acquire);
        guard.renew().await.expect("it is renewed");
        kinds.learn_from(&seen, Request::Renew);
        guard.release().await.expect("it is released");
        let done = locks.shutdown(std::time::Duration::from_secs(5)).await;
        assert!(done, "background work does not end");
        kinds.learn_from(&seen, Request::Release);
        kinds
    }

    /// What was not sent before is such a request.
    fn learn_from(&mut self, seen: &[Watch], request: Request) {
        for hash in seen.iter().flat_map(Watch::seen).filter_map(|c| hash(&c)) {
            self.0.entry(hash).or_insert(request);
        }
    }

    pub(crate) fn of(&self, command: &Command) -> Option<Request> {
        self.0.get(&hash(command)?).copied()
    }
}
