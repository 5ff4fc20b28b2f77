//! What the servers say of themselves, and the least commands of their clients that exclude.

use std::sync::Arc;

use polylock::LockUrl;

use crate::subject::Failure;
use crate::target::{Bare, Opened, Probe};

/// What is known of a server besides its locks.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) probe: Arc<dyn Probe>,
    pub(crate) bare: Option<Bare>,
}

impl Server {
    /// Adds it to what is measured.
    pub(crate) fn beside(self, opened: Opened) -> Opened {
        let opened = opened.with_probe(self.probe);
        match self.bare {
            Some(bare) => opened.with_bare(bare),
            None => opened,
        }
    }
}

/// Connects to the server behind the URL of a backend, without the parameters of layers; none for
/// a backend without one.
pub(crate) async fn of(url: &LockUrl) -> Result<Option<Server>, Failure> {
    match url.scheme() {
        _ => Ok(None),
    }
}
