use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use polylock_core::LockKey;
use polylock_core::engine::before;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Serializes the tasks of one process that share a lock: otherwise they would only overwrite each
/// other's row and retry.
///
/// No lock depends on it. Two keys may share a mutex, and a task that waits too long continues without
/// it, because its holder may be on a blocked runtime.
pub(super) struct KeyMutexes([Mutex<()>; TURNS]);

impl KeyMutexes {
    pub(super) async fn wait(&self, key: &LockKey) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        key.as_bytes().hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or_default();
        before(Instant::now() + TIMEOUT, self.0[at].lock()).await
    }
}

impl Default for KeyMutexes {
    fn default() -> Self {
        Self([const { Mutex::const_new(()) }; TURNS])
    }
}

const TURNS: usize = 64;
const TIMEOUT: Duration = Duration::from_millis(100);
