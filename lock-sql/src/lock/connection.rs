//! The connection for the start, for checks and for changes of the table.

use std::sync::Arc;

use polylock_core::ErrorKind;
use tokio::time::timeout;

use crate::config::ServerKind;
use crate::error::{SqlCause, SqlFailure};
use crate::wire::{ConnectTarget, DbError, ErrorClass, ServerConnection};

/// Opens a connection for the start, before any other.
pub(crate) async fn open(target: &Arc<ConnectTarget>) -> Result<ServerConnection, SqlFailure> {
    let opened = async {
        let opened = ServerConnection::open(target).await;
        opened.map_err(|db_error| refusal(db_error, target))
    };
    within(target, opened).await
}

fn refusal(db_error: DbError, target: &ConnectTarget) -> SqlFailure {
    match target.config.server {
        ServerKind::MySql
            if db_error.class == ErrorClass::Denied && !target.config.speaks_tls() =>
        {
            // MySQL and MariaDB have the same words for a wrong password.
            let says = "the server refuses this user, or takes it by TLS only: then write tls=on";
            SqlCause::said(ErrorKind::Denied, says, db_error.source).into()
        }
        _ => SqlFailure::of_opening(db_error),
    }
}

/// Limits a step of the start to the timeout of a statement.
pub(crate) async fn within<T>(
    target: &ConnectTarget,
    work: impl Future<Output = Result<T, SqlFailure>>,
) -> Result<T, SqlFailure> {
    let limit = target.config.timeout;
    let done = timeout(limit, work).await;
    done.unwrap_or_else(|_| Err(SqlCause::Silent(limit).into()))
}
