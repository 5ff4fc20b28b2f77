//! What the locks protect: a register that refuses tokens smaller than the largest it has seen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylock_core::LockKey;
use tokio::sync::oneshot;

use super::world::World;
use crate::history::What;
use crate::lock;

/// The largest token that the register of each key has seen. It knows nothing of locks.
#[derive(Debug, Default)]
pub(crate) struct Resource(Mutex<BTreeMap<LockKey, u64>>);

impl Resource {
    fn accepts(&self, key: &LockKey, token: u64) -> bool {
        let mut registers = lock(&self.0);
        let largest = registers.entry(key.clone()).or_default();
        *largest = token.max(*largest);
        *largest == token
    }
}

impl World {
    /// Writes with a token, and waits for it. A message that is under way for its `transit` arrives
    /// even if its sender dies.
    pub(crate) async fn write(
        self: &Arc<Self>,
        operation: usize,
        key: &LockKey,
        token: u64,
        transit: Duration,
    ) {
        let (done, answer) = oneshot::channel();
        let key = key.clone();
        self.after(transit, move |world| {
            let accepted = world.resource.accepts(&key, token);
            let (at, mut book) = (world.now(), world.log.book());
            let how = if accepted { "accepted" } else { "refused" };
            book.note(at, format_args!("{key} #{operation}: write {how}, {token}"));
            book.event(at, &key, None, What::Wrote { token, accepted });
            // The sender may have died.
            done.send(()).unwrap_or_default();
        });
        drop(answer.await);
    }
}
