use std::collections::HashMap;
use std::sync::Arc;

use polylock_core::LockKey;
use tokio::sync::Notify;

use crate::mutex::Mutex;

/// Wakes the waiters of this process when it releases a lock, so that they need not poll.
#[derive(Default)]
pub(crate) struct ReleaseNotifier(Mutex<HashMap<LockKey, Arc<Notify>>>);

impl ReleaseNotifier {
    /// Enters a waiter, which leaves when it is dropped.
    pub(crate) fn enter(self: &Arc<Self>, key: &LockKey) -> ReleaseWait {
        let released = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        ReleaseWait {
            release_notifier: Arc::clone(self),
            key: key.clone(),
            released,
        }
    }

    pub(crate) fn wake(&self, key: &LockKey) {
        if let Some(released) = self.0.lock().get(key) {
            released.notify_waiters();
        }
    }

    /// Locks may have been released without a notification.
    pub(crate) fn wake_all(&self) {
        self.0
            .lock()
            .values()
            .for_each(|released| released.notify_waiters());
    }
}

pub(crate) struct ReleaseWait {
    release_notifier: Arc<ReleaseNotifier>,
    key: LockKey,
    pub(crate) released: Arc<Notify>,
}

impl Drop for ReleaseWait {
    fn drop(&mut self) {
        let mut release_notifier = self.release_notifier.0.lock();
        // The map and this waiter; others can enter under the mutex only.
        if Arc::strong_count(&self.released) == 2 {
            release_notifier.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_waiters_take_no_memory() {
        let release_notifier = Arc::new(ReleaseNotifier::default());
        let key = LockKey::new("a").unwrap();
        let (first, second) = (release_notifier.enter(&key), release_notifier.enter(&key));
        drop(first);
        assert_eq!(release_notifier.0.lock().len(), 1);
        drop(second);
        assert_eq!(release_notifier.0.lock().len(), 0);
    }
}
