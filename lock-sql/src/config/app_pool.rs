//! The interface to a pool of the application.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::engine::Engine;
use sqlx::pool::CloseEvent;

use crate::error::SqlFailure;
use crate::wire::{ConnectTarget, DriverOptions, ReservedPool};

/// A pool of the application, of any database.
#[async_trait]
pub(crate) trait AppPool: Send + Sync {
    fn options(&self) -> DriverOptions;

    fn max_connections(&self) -> u32;

    fn is_closed(&self) -> bool;

    fn close_event(&self) -> CloseEvent;

    /// Reserves connections, and opens those of locks in their places.
    async fn reserve(
        &self,
        engine: &Engine,
        target: &ConnectTarget,
    ) -> Result<Arc<dyn ReservedPool>, SqlFailure>;
}

impl fmt::Debug for dyn AppPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppPool")
    }
}
