use std::collections::HashMap;
use std::sync::Arc;

use lock_testkit::proxy::{Command, Proxy, Watch};
use polylock_core::memory::Request;
use polylock_core::{DistributedLock, Released};

use super::{SOON, acquire, any_id, attempt, granted, release, until, within};

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
    pub(crate) async fn learn(proxies: &[Proxy], locks: Arc<dyn DistributedLock>) -> Self {
        let watches: Vec<_> = proxies.iter().map(|proxy| proxy.watch(|_| true)).collect();
        let mut kinds = Self::default();
        // Nothing is renewed in the background meanwhile.
        let once = attempt("lock:learn").with_ttl(SOON * 6);
        let guard = acquire(&*locks, &once).await;
        locks.acquire(&once).await.expect_err("it is taken");
        let has_queue = locks.capabilities().fair;
        let next = has_queue.then(|| {
            let (locks, one) = (Arc::clone(&locks), within(once.clone(), SOON));
            tokio::spawn(async move { locks.acquire(&one).await })
        });
        until("somebody waits", || {
            let mut seen = watches.iter().flat_map(Watch::seen);
            !has_queue || seen.any(|command| hash(&command).is_some() && says_where(&command))
        })
        .await;
        kinds.learn_from(&watches, Request::Acquire);
        guard.renew().await.expect("it is renewed");
        kinds.learn_from(&watches, Request::Renew);
        release(guard).await;
        if let Some(next) = next {
            release(granted(next).await).await;
        }
        assert!(locks.shutdown(SOON).await, "background work does not end");
        kinds.learn_from(&watches, Request::Release);
        let guard = acquire(&*locks, &once).await;
        let (id, new) = (guard.lease_id(), any_id());
        guard.abandon();
        let (id, admin) = (id.expect("a lease"), locks.admin().expect("it has one"));
        let adopted = admin.adopt_lease(once.key(), id, new, SOON * 6).await;
        kinds.learn_from(&watches, Request::Adopt);
        let holder = adopted.map_or(id, |_| new);
        let released = admin.release_lease(once.key(), holder).await;
        assert_eq!(released.expect("it is released"), Released::Clean);
        kinds
    }

    /// What was not sent before is such a request.
    fn learn_from(&mut self, watches: &[Watch], request: Request) {
        for command in watches.iter().flat_map(Watch::seen) {
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
        let joins = command.is("XADD") && command.has("NOMKSTREAM");
        if joins || command.is("SET") && command.has("NX") {
            return Some(Request::Acquire);
        }
        self.requests.get(&hash(command)?).copied()
    }

    pub(crate) fn is(self: &Arc<Self>, wanted: Request) -> impl Fn(&Command) -> bool + use<> {
        let kinds = Arc::clone(self);
        move |command| kinds.of(command) == Some(wanted)
    }
}

/// Whether it names the channel of a waiter.
fn says_where(command: &Command) -> bool {
    let last = command.args.len().saturating_sub(1);
    command.arg(last).contains("polylock:")
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
