//! Having the nodes tell that a lock was broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ensemble::Ensemble;

/// Whether the nodes were asked to.
#[derive(Debug, Default)]
pub(super) struct Listening(AtomicBool);

impl Listening {
    /// Asks the nodes once. Nobody waits for that: until then, and where it is impossible, the next
    /// renewal tells.
    pub(super) fn begin(&self, ensemble: &Ensemble) {
        if self.0.load(Ordering::Relaxed) || self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        for node in &ensemble.nodes {
            let link = Arc::clone(&node.server.link);
            let engine = &ensemble.engine;
            engine.spawn_service(async move { drop(link.channel().await) });
        }
    }
}
