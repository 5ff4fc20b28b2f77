use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::subject::Failure;

/// Connections of which each is lent to one at a time.
///
/// Unlike a pool of the client, it asks no connection that comes back whether it is alive: that
/// would be a command more than the least.
pub(super) struct Pool<C> {
    idle: Arc<Mutex<Vec<C>>>,
    permits: Arc<Semaphore>,
}

/// A connection that is in use. It is closed where it is not given back, and with it ends what the
/// server does for it.
pub(super) struct Lent<C> {
    connection: C,
    idle: Arc<Mutex<Vec<C>>>,
    _permit: OwnedSemaphorePermit,
}

impl<C> Pool<C> {
    /// One with at most so many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            idle: Arc::default(),
            permits: Arc::new(Semaphore::new(most)),
        }
    }

    /// Waits for a connection, or makes one.
    pub(super) async fn lend<F>(&self, connect: impl FnOnce() -> F) -> Result<Lent<C>, Failure>
    where
        F: Future<Output = Result<C, Failure>>,
    {
        let permits = Arc::clone(&self.permits);
        let permit = permits.acquire_owned().await;
        let permit = permit.expect("BUG: the semaphore is never closed");
        let idle = lock(&self.idle).pop();
        Ok(Lent {
            connection: match idle {
                Some(connection) => connection,
                None => connect().await?,
            },
            idle: Arc::clone(&self.idle),
            _permit: permit,
        })
    }
}

impl<C> Lent<C> {
    pub(super) fn get(&mut self) -> &mut C {
        &mut self.connection
    }

    /// Lets somebody else have it.
    pub(super) fn give_back(self) {
        let Self {
            connection,
            idle,
            _permit,
        } = self;
        // Before the permit goes.
        lock(&idle).push(connection);
    }
}

fn lock<C>(idle: &Mutex<Vec<C>>) -> std::sync::MutexGuard<'_, Vec<C>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self {
            idle: Arc::clone(&self.idle),
            permits: Arc::clone(&self.permits),
        }
    }
}

impl<C> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}
