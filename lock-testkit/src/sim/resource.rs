//! What the locks protect: a register that is fenced and a counter that is not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylock_core::LockKey;
use tokio::sync::oneshot;

use super::log::{Write, WriteKind};
use super::world::World;
use crate::history::What;
use crate::lock;

/// The protected data of each key. It knows nothing of locks.
#[derive(Debug, Default)]
pub(crate) struct Resource(Mutex<BTreeMap<LockKey, Data>>);

#[derive(Clone, Copy, Debug, Default)]
struct Data {
    /// The largest token that was seen.
    token: u64,
    counter: u64,
}

impl Resource {
    pub(crate) fn counter(&self, key: &LockKey) -> u64 {
        lock(&self.0).entry(key.clone()).or_default().counter
    }

    fn write(&self, key: &LockKey, token: u64) -> WriteKind {
        let mut data = lock(&self.0);
        let data = data.entry(key.clone()).or_default();
        if token < data.token {
            return WriteKind::Refused { token };
        }
        data.token = token;
        WriteKind::Accepted { token }
    }

    fn count(&self, key: &LockKey, to: u64) -> WriteKind {
        let mut data = lock(&self.0);
        let data = data.entry(key.clone()).or_default();
        let from = std::mem::replace(&mut data.counter, to);
        WriteKind::Counted { from, to }
    }
}

impl World {
    /// Writes to the fenced register; the message takes `transit`.
    pub(crate) async fn write(
        self: &Arc<Self>,
        operation: usize,
        key: &LockKey,
        token: u64,
        transit: Duration,
    ) {
        let key = key.clone();
        self.send(transit, move |world| {
            let kind = world.resource.write(&key, token);
            world.written(operation, key, kind);
        })
        .await;
    }

    /// Writes to the unfenced counter.
    pub(crate) async fn count(
        self: &Arc<Self>,
        operation: usize,
        key: &LockKey,
        to: u64,
        transit: Duration,
    ) {
        let key = key.clone();
        self.send(transit, move |world| {
            let kind = world.resource.count(&key, to);
            world.written(operation, key, kind);
        })
        .await;
    }

    /// Lets something happen at the resource, and waits for it. A message that is under way arrives
    /// even if its sender dies.
    async fn send(self: &Arc<Self>, transit: Duration, act: impl FnOnce(&Self) + Send + 'static) {
        let (done, answer) = oneshot::channel();
        let world = Arc::clone(self);
        self.net.post(self.now() + transit, move || {
            act(&world);
            // Whoever waits may have died.
            done.send(()).unwrap_or_default();
        });
        drop(answer.await);
    }

    fn written(&self, operation: usize, key: LockKey, kind: WriteKind) {
        let at = self.now();
        let mut book = self.log.book();
        book.note(at, format_args!("{key} #{operation}: write {kind:?}"));
        if let WriteKind::Accepted { token } | WriteKind::Refused { token } = kind {
            let accepted = matches!(kind, WriteKind::Accepted { .. });
            book.event(at, &key, None, What::Wrote { token, accepted });
        }
        book.writes.push(Write {
            operation,
            key,
            at,
            kind,
        });
    }
}
