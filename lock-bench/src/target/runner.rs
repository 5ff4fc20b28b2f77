use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock::DistributedLock;

use crate::measure::{Recorded, Window};
use crate::subject::{Failure, Locks, Subject};
use crate::workloads::{Job, Taken, contend, take};

/// A subject, with the loops of all workloads around it.
#[derive(Clone)]
pub struct Runner {
    contend: Arc<dyn Contend>,
    locks: Option<Arc<dyn DistributedLock>>,
}

/// Puts the loops of all workloads around a subject.
pub fn runner(subject: impl Subject) -> Runner {
    Runner {
        contend: Arc::new(Contenders(subject)),
        locks: None,
    }
}

impl Runner {
    /// Measures locks of this project that no URL leads to, and their layers too.
    #[must_use]
    pub fn of_locks(locks: Arc<dyn DistributedLock>) -> Self {
        Self {
            locks: Some(Arc::clone(&locks)),
            ..runner(Locks(locks))
        }
    }

    pub(crate) async fn contend(&self, job: Job, window: Window) -> Result<Recorded, Failure> {
        self.contend.contend(job, window).await
    }

    pub(crate) async fn take(
        &self,
        name: String,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Option<Box<dyn Taken>>, Failure> {
        self.contend.take(name, ttl, wait).await
    }

    /// Ends what goes on behind locks, as far as it ends soon.
    pub(crate) async fn close(&self) {
        if let Some(locks) = &self.locks {
            let _all_ended = locks.shutdown(CLOSES_WITHIN).await;
        }
    }

    pub(crate) fn locks(&self) -> Option<&Arc<dyn DistributedLock>> {
        self.locks.as_ref()
    }
}

const CLOSES_WITHIN: Duration = Duration::from_secs(1);

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

/// A subject of any type: one dynamic call for all that its contenders do.
#[async_trait]
trait Contend: Send + Sync {
    async fn contend(&self, job: Job, window: Window) -> Result<Recorded, Failure>;

    async fn take(
        &self,
        name: String,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Option<Box<dyn Taken>>, Failure>;
}

struct Contenders<S>(S);

#[async_trait]
impl<S: Subject> Contend for Contenders<S> {
    async fn contend(&self, job: Job, window: Window) -> Result<Recorded, Failure> {
        contend(self.0.clone(), job, window).await
    }

    async fn take(
        &self,
        name: String,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Option<Box<dyn Taken>>, Failure> {
        take(self.0.clone(), name, ttl, wait).await
    }
}
