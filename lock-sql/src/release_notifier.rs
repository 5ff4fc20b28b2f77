use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::LockKey;
use tokio::sync::Notify;

/// Wakes the waiters of this process when it gives a lock back, so that they need not find out.
#[derive(Default)]
pub(crate) struct ReleaseNotifier(Mutex<HashMap<LockKey, Arc<Notify>>>);

impl ReleaseNotifier {
    /// Enters a waiter, which leaves when it is dropped.
    pub(crate) fn enter(self: &Arc<Self>, key: &LockKey) -> Waiting {
        let released = Arc::clone(self.lock().entry(key.clone()).or_default());
        Waiting {
            release_notifier: Arc::clone(self),
            key: key.clone(),
            released,
        }
    }

    /// The lock was released.
    pub(crate) fn wake(&self, key: &LockKey) {
        if let Some(released) = self.lock().get(key) {
            released.notify_waiters();
        }
    }

    /// Locks may have been released without a notification.
    #[cfg(feature = "postgres")]
    pub(crate) fn wake_all(&self) {
        self.lock()
            .values()
            .for_each(|released| released.notify_waiters());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockKey, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ReleaseNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseNotifier")
            .field("keys", &self.lock().len())
            .finish()
    }
}

/// A waiter for one key.
pub(crate) struct Waiting {
    release_notifier: Arc<ReleaseNotifier>,
    key: LockKey,
    pub(crate) released: Arc<Notify>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut release_notifier = self.release_notifier.lock();
        // The map and this waiter; others can enter under the mutex only.
        if Arc::strong_count(&self.released) == 2 {
            release_notifier.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_release_wakes_all_waiters_of_the_key() {
        let release_notifier = Arc::new(ReleaseNotifier::default());
        let (a, b) = (LockKey::new("a").unwrap(), LockKey::new("b").unwrap());
        let waiting = [release_notifier.enter(&a), release_notifier.enter(&a)];
        let other = release_notifier.enter(&b);
        let woken = waiting
            .each_ref()
            .map(|waiting| waiting.released.notified());
        let asleep = other.released.notified();
        release_notifier.wake(&a);
        for woken in woken {
            woken.await;
        }
        tokio::pin!(asleep);
        assert!(!asleep.enable());
    }

    #[test]
    fn keys_without_waiters_take_no_memory() {
        let release_notifier = Arc::new(ReleaseNotifier::default());
        let key = LockKey::new("a").unwrap();
        let (first, second) = (release_notifier.enter(&key), release_notifier.enter(&key));
        drop(first);
        assert_eq!(release_notifier.lock().len(), 1);
        drop(second);
        assert_eq!(release_notifier.lock().len(), 0);
    }
}
