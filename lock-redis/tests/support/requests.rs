use std::collections::HashMap;
use std::sync::Arc;

use lock_core::memory::Request;
use lock_core::{DistributedLock, Wait};
use lock_redis::RedisConfig;
use lock_testkit::proxy::{Command, Proxy, Watch};

use super::{open, request, take, waiting};

/// Which scripts are which requests.
#[derive(Debug, Default)]
pub(crate) struct Kinds(HashMap<String, Request>);

impl Kinds {
    /// Learns them from a client that does all of it, on a server that knows the scripts from then
    /// on: a fault that is planned meets a script that runs.
    pub(crate) async fn learn(proxy: &Proxy, config: RedisConfig) -> Self {
        let commands = proxy.watch(|_| true);
        let locks = open(config).await;
        let mut kinds = Self::default();
        let guard = take(&locks, "learn").await;
        let busy = locks
            .acquire(&request("learn").with_wait(Wait::Never))
            .await;
        busy.expect_err("it is taken");
        kinds.learn_from(&commands, Request::Acquire);
        guard.renew().await.expect("it is renewed");
        kinds.learn_from(&commands, Request::Renew);
        guard.release().await.expect("it is released");
        kinds.learn_from(&commands, Request::Release);
        let guard = take(&locks, "learn").await;
        let seen = commands.count();
        let next = waiting(&locks, request("learn"));
        while commands.count() < seen + 3 {
            tokio::task::yield_now().await;
        }
        kinds.learn_from(&commands, Request::Acquire);
        guard.release().await.expect("it is released");
        let next = next.await.expect("no panic").expect("it is granted");
        next.release().await.expect("it is released");
        kinds.learn_from(&commands, Request::Release);
        kinds
    }

    /// What was not sent before is such a request.
    fn learn_from(&mut self, commands: &Watch, request: Request) {
        for hash in commands.seen().iter().filter_map(hash) {
            self.0.entry(hash).or_insert(request);
        }
    }

    pub(crate) fn of(&self, command: &Command) -> Option<Request> {
        self.0.get(&hash(command)?).copied()
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
