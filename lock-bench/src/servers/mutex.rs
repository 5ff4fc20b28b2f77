//! What programs of one process use without a library: a map of mutexes, the limit of locks in
//! memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use crate::connection::Opened;
use crate::subject::{Failure, Subject};

pub(super) fn bare(of: &str) -> Opened {
    let commands = "a map of tokio mutexes in the process";
    let mut opened = Opened::bare(of, commands, Mutexes::default());
    opened.is_of_one_process = true;
    opened
}

#[derive(Clone, Default)]
struct Mutexes(Arc<Mutex<ByName>>);

type ByName = HashMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>;

impl Subject for Mutexes {
    type Key = Arc<str>;
    type Held = OwnedMutexGuard<()>;

    fn key(&self, name: &str, _: Duration) -> Result<Arc<str>, Failure> {
        Ok(name.into())
    }

    async fn acquire(&self, key: &Arc<str>, wait: Duration) -> Result<Option<Self::Held>, Failure> {
        let mutex = {
            let mut mutexes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(mutexes.entry(Arc::clone(key)).or_default())
        };
        Ok(timeout(wait, mutex.lock_owned()).await.ok())
    }

    async fn release(&self, held: OwnedMutexGuard<()>) -> Result<(), Failure> {
        drop(held);
        Ok(())
    }
}
