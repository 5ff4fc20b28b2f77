use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use polylock_core::LockKey;
use polylock_core::engine::Mutex;
use tokio::sync::Notify;

use crate::on_drop::OnDrop;

/// Wakes the waiters of this process when it releases a lock, so that they need not poll.
#[derive(Default)]
pub(crate) struct ReleaseNotifier(Mutex<HashMap<LockKey, WaitedFor>>);

#[derive(Default)]
struct WaitedFor {
    released: Arc<Notify>,
    /// How many waiters there are.
    waiters: usize,
}

impl ReleaseNotifier {
    /// Enters a waiter, which is notified of releases until it drops the second value.
    pub(crate) fn enter(&self, key: &LockKey) -> (Arc<Notify>, OnDrop<impl FnMut()>) {
        let released = {
            let mut keys = self.0.lock();
            let waited_for = keys.entry(key.clone()).or_default();
            waited_for.waiters += 1;
            Arc::clone(&waited_for.released)
        };
        (released, OnDrop(move || self.leave(key)))
    }

    fn leave(&self, key: &LockKey) {
        let mut keys = self.0.lock();
        if let Entry::Occupied(mut entry) = keys.entry(key.clone()) {
            entry.get_mut().waiters -= 1;
            if entry.get().waiters == 0 {
                entry.remove();
            }
        }
    }

    pub(crate) fn wake(&self, key: &LockKey) {
        if let Some(waited_for) = self.0.lock().get(key) {
            waited_for.released.notify_waiters();
        }
    }

    /// Locks may have been released without a notification.
    pub(crate) fn wake_all(&self) {
        self.0
            .lock()
            .values()
            .for_each(|waited_for| waited_for.released.notify_waiters());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn keys_without_waiters_take_no_memory() {
        let release_notifier = ReleaseNotifier::default();
        let key = LockKey::new("a").unwrap();
        let (first, second) = (release_notifier.enter(&key), release_notifier.enter(&key));
        drop(first);
        assert_eq!(release_notifier.0.lock().len(), 1);
        drop(second);
        assert_eq!(release_notifier.0.lock().len(), 0);
    }

    #[test]
    fn two_waiters_that_leave_at_once_leave_nothing() {
        const ROUNDS: usize = 10_000;
        let release_notifier = ReleaseNotifier::default();
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for n in 0..ROUNDS {
                        let key = LockKey::new(format!("job {n}")).unwrap();
                        let waiter = release_notifier.enter(&key);
                        both.wait();
                        drop(waiter);
                    }
                });
            }
        });
        assert_eq!(release_notifier.0.lock().len(), 0);
    }
}
