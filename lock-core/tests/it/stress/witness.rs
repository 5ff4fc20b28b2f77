use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use polylock_core::prelude::*;

use super::KEYS;

/// The state that all tasks share.
#[derive(Default)]
pub(crate) struct Witness {
    /// Whether locks are broken, so that holders may overlap for a moment.
    pub(crate) breaking: bool,
    keys: [Arc<Section>; KEYS.len()],
    pub(crate) broken: AtomicUsize,
    pub(crate) granted: AtomicUsize,
    pub(crate) contended: AtomicUsize,
    pub(crate) disturbed: AtomicUsize,
    pub(crate) dropped: AtomicUsize,
    pub(crate) entered: AtomicUsize,
}

/// The critical section of one key.
#[derive(Default)]
struct Section {
    occupied: AtomicBool,
    last_token: AtomicU64,
}

impl Witness {
    /// For a run in which locks are broken, which must leave no waiter behind.
    pub(crate) fn of_breaking() -> Self {
        Self {
            breaking: true,
            ..Self::default()
        }
    }

    pub(crate) fn enter(&self, guard: &LockGuard) -> Inside {
        let key = guard.key().as_str();
        let at = KEYS.iter().position(|known| *known == key).unwrap();
        let section = &self.keys[at];
        if self.breaking {
            return Inside(Arc::clone(section));
        }
        let token = guard.fencing_token().unwrap().value();
        assert!(
            !section.occupied.swap(true, Ordering::SeqCst),
            "two holders of {key}"
        );
        let last = section.last_token.swap(token, Ordering::SeqCst);
        assert!(last < token, "{key}: token {token} after {last}");
        Inside(Arc::clone(section))
    }

    /// A run in which nothing went wrong shows nothing.
    pub(crate) fn assert_awake(&self) {
        let counted = [
            ("granted", &self.granted),
            ("contended", &self.contended),
            ("disturbed", &self.disturbed),
            ("dropped", &self.dropped),
            ("entered again", &self.entered),
        ];
        for (what, counter) in counted {
            println!("{what}: {counter:?}");
            assert_ne!(counter.load(Ordering::Relaxed), 0, "never {what}");
        }
    }
}

pub(crate) struct Inside(Arc<Section>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.occupied.store(false, Ordering::SeqCst);
    }
}
