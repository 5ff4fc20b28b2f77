//! The steps before the first lock is acquired.

use std::sync::Arc;

use polylock_core::engine::Engine;
use tokio::sync::oneshot;

use crate::checks;
use crate::error::{SqlCause, SqlFailure};
use crate::schema;
use crate::wire::{ConnectTarget, ServerConnection};

/// Checks the server, and ensures that the table exists.
pub(super) async fn start(engine: &Engine, target: &Arc<ConnectTarget>) -> Result<(), SqlFailure> {
    target.check_files().await?;
    target.reserve(engine).await?;
    checks::look_for_pooler(target).await?;
    let mut connection = ServerConnection::open_first(target).await?;
    target.within(checks::check(&mut connection)).await?;
    target
        .within(schema::ensure(&mut connection))
        .await
        .map(drop)
}

/// Runs work to its end even if its caller is gone: a dropped start leaves nothing half done.
pub(super) async fn to_its_end<T: Send + 'static>(
    engine: &Engine,
    work: impl Future<Output = Result<T, SqlFailure>> + Send + 'static,
) -> Result<T, SqlFailure> {
    let (reply, done) = oneshot::channel();
    engine.spawn(async move {
        // The caller may be gone.
        drop(reply.send(work.await));
    });
    let ended = || SqlCause::Unfit("the runtime of the connection has ended".to_owned());
    done.await.unwrap_or_else(|_| Err(ended().into()))
}
