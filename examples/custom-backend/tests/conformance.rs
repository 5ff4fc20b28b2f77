//! What every backend has to do, each case as a test of its own.

use std::sync::Arc;

use async_trait::async_trait;
use custom_backend::Files;
use polylock_conformance::Harness;
use polylock_conformance::taker::Taker;
use polylock_core::DistributedLock;
use tempfile::TempDir;

polylock_conformance::conformance!(
    harness = Store(tempfile::tempdir().unwrap()),
    // What the backend does not offer, and what this harness cannot do.
    skip = [
        Admin, Downgrade, Duplicates, Fair, Faults, Look, Permits, Shared
    ],
);

/// A directory of its own for each case.
#[derive(Debug)]
struct Store(TempDir);

#[async_trait]
impl Harness for Store {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        Arc::new(Files::open(self.0.path().into()).unwrap())
    }

    fn taker(&self) -> Option<Taker> {
        let url = format!("files:{}", self.0.path().display());
        Some(Taker::example("files-taker", url))
    }
}
