//! Connections of locks that count in a pool of the application.
//!
//! A pool serves requests in order, so a renewal would wait behind the queries of the application. The
//! pool gives out a reserved connection for good: locks keep its place in the pool, and replace the
//! connection when it breaks. It is opened here on the runtime of the engine, and not by the pool: with
//! the pool, a renewal would wait for a runtime that the application blocks, under the settings of its
//! hooks.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::engine::{Engine, Mutex};
use sqlx::pool::{CloseEvent, PoolConnection};
use sqlx::{Connection, Database, Pool};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::DbError;
use super::driver::{ConnectionSlot, Driver, DriverOptions, RawConnection, ReservedPool};
use super::target::ConnectTarget;
use crate::config::AppPool;
use crate::error::{SqlCause, SqlFailure};

struct ReservedConnections<DB: Database> {
    engine: Engine,
    /// The free places; `None` once the pool is closed.
    free: Mutex<Option<Vec<Free<DB>>>>,
    /// Ends the task that waits for the end of the pool.
    _alive: oneshot::Sender<Infallible>,
}

/// A free place, and when its connection was opened. Without that moment the connection was used: it may
/// be broken, or in the middle of a statement whose caller is gone.
type Free<DB> = (Permit<DB>, Option<Instant>);

#[async_trait]
impl<DB: Driver> AppPool for Pool<DB>
where
    DriverOptions: From<<DB::Connection as Connection>::Options>,
{
    fn options(&self) -> DriverOptions {
        (*self.connect_options()).clone().into()
    }

    fn max_connections(&self) -> u32 {
        self.options().get_max_connections()
    }

    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    fn close_event(&self) -> CloseEvent {
        self.close_event()
    }

    async fn reserve(
        &self,
        engine: &Engine,
        target: &ConnectTarget,
    ) -> Result<Arc<dyn ReservedPool>, SqlFailure> {
        let (count, within) = (target.config.reserved(), target.config.timeout);
        let mut free = Vec::with_capacity(count);
        for _ in 0..count {
            // Within its own limit: an error says more than that it took too long.
            let acquired = match timeout(within, self.acquire()).await {
                Ok(Err(sqlx::Error::PoolTimedOut)) | Err(_) => {
                    return Err(SqlCause::Unfit(busy(self.max_connections(), count)).into());
                }
                Ok(acquired) => acquired.map_err(DbError::of_client),
            };
            let unreachable = |e| SqlFailure::of_opening(target.unreachable(e));
            let mut permit = Permit(Some(acquired.map_err(unreachable)?));
            let opening = async { DB::dial(target.options().await?).await };
            let opened = timeout(within, Box::pin(opening)).await;
            let opened = opened.map_err(|_| target.silent(within))?;
            let theirs = permit.replace(opened.map_err(unreachable)?);
            // It may hang with its server, but is closed anyway.
            drop(timeout(CLOSING, theirs.close()).await);
            free.push((permit, Some(Instant::now())));
        }
        let (alive, mut ended) = oneshot::channel();
        let reserved = Arc::new(ReservedConnections {
            engine: engine.clone(),
            free: Mutex::new(Some(free)),
            _alive: alive,
        });
        let (weak, mut closing) = (Arc::downgrade(&reserved), self.close_event());
        engine.spawn_service(async move {
            tokio::select! {
                () = &mut closing => {}
                _ = &mut ended => return,
            }
            if let Some(reserved) = weak.upgrade() {
                // Returns the free places; the others follow when their statement ends.
                let free = reserved.free.lock().take();
                drop(free);
            }
        });
        Ok(reserved)
    }
}

#[async_trait]
impl<DB: Driver> ReservedPool for ReservedConnections<DB> {
    async fn open(
        self: Arc<Self>,
        options: DriverOptions,
    ) -> Result<Box<dyn ConnectionSlot>, DbError> {
        let free = match &mut *self.free.lock() {
            None => Err(sqlx::Error::PoolClosed),
            // There are as many as connections at once, unless some that were lent are beyond the size of
            // their pool.
            Some(free) => free.pop().ok_or(sqlx::Error::PoolTimedOut),
        };
        let (permit, opened) = free.map_err(DbError::of_client)?;
        let mut connection = ReservedConnection {
            permit,
            engine: self.engine.clone(),
            owner: Arc::downgrade(&self),
        };
        if opened.is_none_or(|opened| opened.elapsed() >= FRESH) {
            let opened = Box::pin(DB::dial(options)).await?;
            drop(connection.permit.replace(opened));
        }
        Ok(Box::new(connection))
    }
}

impl<DB: Database> Drop for ReservedConnections<DB> {
    fn drop(&mut self) {
        let free = self.free.lock().take();
        return_to_pool(&self.engine, free.unwrap_or_default());
    }
}

/// A connection in a place of the pool.
struct ReservedConnection<DB: Database> {
    permit: Permit<DB>,
    engine: Engine,
    owner: Weak<ReservedConnections<DB>>,
}

impl<DB: Database> Drop for ReservedConnection<DB> {
    fn drop(&mut self) {
        let permit = Permit(self.permit.0.take());
        if let Some(owner) = self.owner.upgrade() {
            let mut free = owner.free.lock();
            if let Some(free) = &mut *free {
                return free.push((permit, None));
            }
        }
        return_to_pool(&self.engine, vec![(permit, None)]);
    }
}

impl<DB: Driver> ConnectionSlot for ReservedConnection<DB> {
    fn raw(&mut self) -> &mut dyn RawConnection {
        self.permit.get_mut()
    }
}

/// A place among the connections of a pool, with its connection. When the place is returned, the
/// connection is closed: the pool never reuses a connection of locks.
struct Permit<DB: Database>(Option<PoolConnection<DB>>);

impl<DB: Database> Permit<DB> {
    fn get_mut(&mut self) -> &mut DB::Connection {
        self.0
            .as_mut()
            .expect("BUG: it is taken when it is dropped")
    }

    /// Puts a connection in the place of another, which is closed when it is dropped.
    fn replace(&mut self, opened: DB::Connection) -> DB::Connection {
        std::mem::replace(self.get_mut(), opened)
    }
}

impl<DB: Database> Drop for Permit<DB> {
    fn drop(&mut self) {
        let Some(mut connection) = self.0.take() else {
            return;
        };
        if Handle::try_current().is_ok() {
            connection.close_on_drop();
        } else {
            // The pool would panic without a runtime. The engine's has ended: the place stays taken.
            drop(connection.leak());
        }
    }
}

/// Returns places on the engine: the last connection may be dropped outside of any runtime.
fn return_to_pool<DB: Database>(engine: &Engine, permits: Vec<Free<DB>>) {
    if !permits.is_empty() {
        engine.spawn_service(async move { drop(permits) });
    }
}

fn busy(most: u32, count: usize) -> String {
    format!(
        "the pool has no free connection for locks, which reserve {count} of its {most}: connect before \
         the application uses all of them"
    )
}

/// A connection that was not used for longer may be broken, as one may be that a restarted server forgot.
const FRESH: Duration = Duration::from_secs(10);

/// How long a connection of the pool may take to say goodbye.
const CLOSING: Duration = Duration::from_millis(500);
