//! A connection to the measured locks.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use polylock::DistributedLock;

use crate::measure::{RecordedSpans, Window};
use crate::report::TargetKind;
use crate::subject::{Failure, Subject, SubjectLocks};
use crate::workloads::{ContenderJob, SubjectGuard, acquire, contend};

/// A connection to what is measured: a subject of any type, with the loops of all workloads around
/// it.
#[derive(Clone)]
pub struct Opened {
    pub(crate) kind: TargetKind,
    /// Whether waiters wait in a queue and do not poll.
    pub(crate) has_queue: bool,
    /// Whether other processes do not see these locks.
    pub(crate) is_of_one_process: bool,
    /// Those of this project, which have layers too.
    pub(crate) locks: Option<Arc<dyn DistributedLock>>,
    contend: Arc<dyn Fn(ContenderJob, Window) -> Boxed<RecordedSpans> + Send + Sync>,
    acquire: Arc<dyn Fn(String, Duration, Duration) -> Boxed<Option<SubjectGuard>> + Send + Sync>,
}

pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

impl Opened {
    /// Locks of another library, with its name and version.
    pub fn peer(library: impl Into<String>, subject: impl Subject) -> Self {
        let library = library.into();
        Self::new(TargetKind::Peer { library }, subject)
    }

    /// Locks of this project.
    #[must_use]
    pub fn locks(backend: impl Into<String>, locks: Arc<dyn DistributedLock>) -> Self {
        let backend = backend.into();
        Self {
            is_of_one_process: backend == "memory",
            locks: Some(Arc::clone(&locks)),
            ..Self::new(TargetKind::Lock { backend }, SubjectLocks(locks))
        }
    }

    /// The bare commands beside the target with the name `of`.
    pub(crate) fn bare(of: &str, commands: &str, subject: impl Subject) -> Self {
        let (of, commands) = (of.to_owned(), commands.to_owned());
        Self::new(TargetKind::Bare { of, commands }, subject)
    }

    fn new(kind: TargetKind, subject: impl Subject) -> Self {
        let other = subject.clone();
        Self {
            kind,
            has_queue: true,
            is_of_one_process: false,
            locks: None,
            contend: Arc::new(move |job, window| Box::pin(contend(subject.clone(), job, window))),
            acquire: Arc::new(move |name, ttl, wait| {
                Box::pin(acquire(other.clone(), name, ttl, wait))
            }),
        }
    }

    pub(crate) async fn contend(
        &self,
        job: ContenderJob,
        window: Window,
    ) -> Result<RecordedSpans, Failure> {
        (self.contend)(job, window).await
    }

    pub(crate) async fn acquire(
        &self,
        name: String,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Option<SubjectGuard>, Failure> {
        (self.acquire)(name, ttl, wait).await
    }

    /// Ends background work of locks, as far as it ends soon.
    pub(crate) async fn close(&self) {
        if let Some(locks) = &self.locks {
            let _all_ended = locks.shutdown(CLOSE_TIMEOUT).await;
        }
    }
}

const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
