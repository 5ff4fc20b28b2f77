use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use super::witness::witness;

/// A set of runtimes, each until it shuts down.
#[derive(Debug, Default)]
pub(crate) struct Runtimes {
    ids: Arc<RwLock<HashSet<Id>>>,
    /// What takes them out at their end.
    witnesses: Mutex<Vec<AbortHandle>>,
}

impl Runtimes {
    pub(crate) fn contains(&self, id: Id) -> bool {
        let ids = self.ids.read().unwrap_or_else(PoisonError::into_inner);
        ids.contains(&id)
    }

    /// Adds a runtime; whether it was not there.
    pub(crate) fn add(&self, runtime: &Handle) -> bool {
        let id = runtime.id();
        if self.contains(id) || !insert(&self.ids, id) {
            return false;
        }
        let ids = Arc::downgrade(&self.ids);
        // Outside the lock: on a runtime that is over already, this ends at once.
        let witness = witness(runtime, move || {
            if let Some(ids) = ids.upgrade() {
                let mut ids = ids.write().unwrap_or_else(PoisonError::into_inner);
                ids.remove(&id);
            }
        });
        let mut witnesses = self
            .witnesses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        witnesses.retain(|witness| !witness.is_finished());
        witnesses.push(witness);
        true
    }
}

fn insert(ids: &RwLock<HashSet<Id>>, id: Id) -> bool {
    let mut ids = ids.write().unwrap_or_else(PoisonError::into_inner);
    ids.insert(id)
}

impl Drop for Runtimes {
    fn drop(&mut self) {
        let witnesses = self.witnesses.get_mut();
        for witness in witnesses.unwrap_or_else(PoisonError::into_inner) {
            witness.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_that_are_over_are_forgotten() {
        let all = Runtimes::default();
        for _ in 0..3 {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            let handle = runtime.handle().clone();
            assert!(all.add(&handle), "a new runtime");
            assert!(!all.add(&handle), "the same once more");
            assert!(all.contains(handle.id()));
            drop(runtime);
            assert!(!all.contains(handle.id()), "it is over");
        }
        let left = all.ids.read().unwrap().len();
        assert_eq!(left, 0, "runtimes that are over are still in the set");
    }
}
