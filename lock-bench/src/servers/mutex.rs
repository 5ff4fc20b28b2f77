//! What programs of one process use without a library: a map of mutexes, the limit of locks in
//! memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use crate::subject::{Failure, Subject};
use crate::target::{Bare, runner};

pub(super) fn bare() -> Bare {
    let mutexes = Mutexes::default();
    Bare::new("a map of tokio mutexes in the process", runner(mutexes)).waiting()
}

#[derive(Clone, Default)]
struct Mutexes(Arc<Mutex<ByName>>);

type ByName = HashMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>;

impl Subject for Mutexes {
    type Key = Arc<str>;
    type Held = OwnedMutexGuard<()>;

    fn key(&self, name: &str) -> Result<Arc<str>, Failure> {
        Ok(name.into())
    }

    async fn acquire(
        &self,
        key: &Arc<str>,
        _: Duration,
        wait: Option<Duration>,
    ) -> Result<Option<OwnedMutexGuard<()>>, Failure> {
        let mutex = {
            let mut mutexes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(mutexes.entry(Arc::clone(key)).or_default())
        };
        Ok(timeout(wait.unwrap_or(Duration::MAX), mutex.lock_owned())
            .await
            .ok())
    }

    async fn release(&self, held: OwnedMutexGuard<()>) -> Result<(), Failure> {
        drop(held);
        Ok(())
    }
}
