use std::fmt;
use std::sync::Arc;

use polylock::DistributedLock;

use crate::subject::{Locks, Subject};

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
    /// The runner of locks of this project, for which there are layers too.
    pub(crate) fn of_locks(locks: Arc<dyn DistributedLock>) -> Self {
        Self {
            locks: Some(Arc::clone(&locks)),
            ..runner(Locks(locks))
        }
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

/// A subject of any type.
trait Contend: Send + Sync {}

struct Contenders<S>(S);

impl<S: Subject> Contend for Contenders<S> {}
