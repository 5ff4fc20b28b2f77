use std::collections::HashMap;
use std::sync::Arc;

use lock_core::memory::Request;
use lock_core::{DistributedLock, Wait};
use lock_redis::RedisConfig;
use lock_testkit::proxy::{Command, Proxy, Watch};

use super::{SOON, open, take, within};

/// Which scripts are which requests.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    requests: HashMap<String, Request>,
    scripts: Vec<String>,
}

impl Kinds {
    /// Learns them from a client behind proxies that does all of it.
    ///
    /// The servers have to know the scripts before a fault is planned, or it meets a request that
    /// is refused and sent again.
    pub(crate) async fn learn(proxies: &[Proxy], config: RedisConfig) -> Self {
        let watches: Vec<_> = proxies.iter().map(|proxy| proxy.watch(|_| true)).collect();
        let locks = open(config).await;
        let mut kinds = Self::default();
        let request = super::request("lock:learn").with_wait(Wait::Never);
        let guard = locks
            .acquire(&request)
            .await
            .expect("a free lock is granted");
        let waiter = within(super::request("lock:learn"), super::ms(20));
        locks.acquire(&waiter).await.expect_err("it is taken");
        // What undoes it may be under way, and is no acquisition.
        kinds.learn_from(&watches, Request::Acquire, 6);
        guard.renew().await.expect("it is renewed");
        kinds.learn_from(&watches, Request::Renew, 2);
        guard.release().await.expect("it is released");
        kinds.learn_from(&watches, Request::Release, 3);
        assert!(locks.shutdown(SOON).await, "background work does not end");
        let again = take(&locks, "lock:learn").await;
        again.release().await.expect("it is released");
        kinds
    }

    /// What was not sent before, and has so many arguments, is such a request.
    fn learn_from(&mut self, watches: &[Watch], request: Request, args: usize) {
        for command in watches.iter().flat_map(Watch::seen) {
            let keys: usize = command.arg(2).parse().unwrap_or(0);
            if command.args.len() != 3 + keys + args {
                continue;
            }
            if let Some(hash) = hash(&command) {
                self.requests.entry(hash).or_insert(request);
            }
            if command.is("EVAL") {
                self.scripts.push(command.arg(1).into_owned());
            }
        }
    }

    /// The texts of the scripts.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = &String> {
        self.scripts.iter()
    }

    pub(crate) fn of(&self, command: &Command) -> Option<Request> {
        self.requests.get(&hash(command)?).copied()
    }

    pub(crate) fn is(self: &Arc<Self>, wanted: Request) -> impl Fn(&Command) -> bool + use<> {
        let kinds = Arc::clone(self);
        move |command| kinds.of(command) == Some(wanted)
    }
}

/// The hash of the script that a command runs.
fn hash(command: &Command) -> Option<String> {
    if command.is("EVALSHA") {
        Some(command.arg(1).into_owned())
    } else if command.is("EVAL") {
        Some(redis::Script::new(&command.arg(1)).get_hash().to_owned())
    } else {
        None
    }
}
