//! Having the nodes tell that a lock was broken.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::runtime::{Handle, Id};

use super::ensemble::Ensemble;

/// The runtimes whose connections listen, or tried to.
#[derive(Debug, Default)]
pub(super) struct Listening(RwLock<HashSet<Id>>);

impl Listening {
    /// Has the connections of this runtime listen. Nobody waits for that: until then, and where it is
    /// impossible, the next renewal tells.
    pub(super) fn begin(&self, ensemble: &Ensemble) {
        let runtime = Handle::current();
        let id = runtime.id();
        let begun = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if begun.contains(&id) {
            return;
        }
        drop(begun);
        let mut begun = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if begun.insert(id) {
            for node in &ensemble.nodes {
                let link = Arc::clone(&node.server.link);
                drop(runtime.spawn(async move { drop(link.channel().await) }));
            }
        }
    }
}
