//! Having the nodes tell that a lock was broken.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::ensemble::Ensemble;
use crate::link::Runtimes;

/// The runtimes whose connections listen, or tried to.
#[derive(Debug, Default)]
pub(super) struct Listening(Runtimes);

impl Listening {
    /// Has the connections of this runtime listen. Nobody waits for that: until then, and where it is
    /// impossible, the next renewal tells.
    pub(super) fn begin(&self, ensemble: &Ensemble) {
        let runtime = Handle::current();
        if self.0.add(&runtime) {
            for node in &ensemble.nodes {
                let link = Arc::clone(&node.server.link);
                drop(runtime.spawn(async move { drop(link.channel().await) }));
            }
        }
    }
}
