//! The steps before the first lock is acquired.

use std::sync::Arc;

use polylock_core::ErrorKind;
use polylock_core::engine::Engine;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::checks;
use crate::config::ServerKind;
use crate::error::{SqlCause, SqlFailure};
use crate::schema;
use crate::wire::{ConnectTarget, DbError, ErrorClass, ServerConnection};

/// Checks the server, and ensures that the table exists.
pub(super) async fn start(engine: &Engine, target: &Arc<ConnectTarget>) -> Result<(), SqlFailure> {
    target.reserve(engine).await?;
    checks::look_for_pooler(target).await?;
    let mut connection = open(target).await?;
    within(target, checks::check(&mut connection)).await?;
    within(target, schema::ensure(&mut connection))
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

/// Opens a connection for the start, before any other.
pub(crate) async fn open(target: &Arc<ConnectTarget>) -> Result<ServerConnection, SqlFailure> {
    let opened = async {
        let opened = ServerConnection::open(target).await;
        opened.map_err(|db_error| refusal(db_error, target))
    };
    within(target, opened).await
}

/// The failure of an attempt to connect, for a user or a database that the server refuses as well.
pub(crate) fn refusal(db_error: DbError, target: &ConnectTarget) -> SqlFailure {
    let config = &target.config;
    if db_error.says.is_some() {
        return SqlFailure::of_opening(db_error);
    }
    let (kind, says) = match (db_error.class, config.server) {
        // MySQL and MariaDB have the same words for a wrong password.
        (ErrorClass::Denied, ServerKind::MySql) if !config.speaks_tls() => (
            ErrorKind::Denied,
            "the server refuses this user, or takes it by TLS only: then write tls=on".to_owned(),
        ),
        // MySQL does not tell a user that may not use a database whether there is one.
        (ErrorClass::NoRight, ServerKind::MySql) => (
            ErrorKind::Denied,
            format!(
                "the database {:?} does not exist, or is not granted to this user",
                config.database
            ),
        ),
        (ErrorClass::NoTable, _) => (
            ErrorKind::InvalidConfig,
            format!("the database {:?} does not exist", config.database),
        ),
        _ => return SqlFailure::of_opening(db_error),
    };
    SqlCause::said(kind, says, db_error.source).into()
}

/// Limits a step of the start to the timeout of a statement.
pub(crate) async fn within<T>(
    target: &ConnectTarget,
    work: impl Future<Output = Result<T, SqlFailure>>,
) -> Result<T, SqlFailure> {
    let limit = target.config.timeout;
    let done = timeout(limit, work).await;
    done.unwrap_or_else(|_| Err(target.silent(limit).into()))
}
