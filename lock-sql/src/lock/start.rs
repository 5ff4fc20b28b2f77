//! The steps before the first lock is acquired.

use std::sync::Arc;

use polylock_core::ErrorKind;
use polylock_core::engine::Engine;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::checks;
use crate::config::Server;
use crate::error::{Cause, Failure};
use crate::schema;
use crate::wire::{Class, Connection, DbError, Target};

/// Checks the server, and ensures that the table exists.
pub(super) async fn start(engine: &Engine, target: &Arc<Target>) -> Result<(), Failure> {
    target.reserve(engine).await?;
    checks::look_for_pooler(target).await?;
    let mut connection = open(target).await?;
    within(target, checks::check(&mut connection)).await?;
    within(target, schema::ensure(&mut connection))
        .await
        .map(drop)
}

/// Opens a connection for the start, before any other.
pub(crate) async fn open(target: &Arc<Target>) -> Result<Connection, Failure> {
    let opened = async {
        let opened = Connection::open(target).await;
        opened.map_err(|db_error| refusal(db_error, target))
    };
    within(target, opened).await
}

fn refusal(db_error: DbError, target: &Target) -> Failure {
    match target.config.server {
        Server::MySql if db_error.class == Class::Denied && !target.config.speaks_tls() => {
            // MySQL and MariaDB have the same words for a wrong password.
            let says = "the server refuses this user, or takes it by TLS only: then write tls=on";
            Cause::said(ErrorKind::Denied, says, db_error.source).into()
        }
        _ => Failure::of_opening(db_error),
    }
}

/// Runs work to its end even if its caller is gone: a dropped start leaves nothing half done.
pub(super) async fn to_its_end<T: Send + 'static>(
    engine: &Engine,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let (reply, done) = oneshot::channel();
    engine.spawn(async move {
        // The caller may be gone.
        drop(reply.send(work.await));
    });
    let ended = || Cause::Unfit("the runtime of the connection has ended".to_owned());
    done.await.unwrap_or_else(|_| Err(ended().into()))
}

/// Limits a step of the start to the timeout of a statement.
pub(crate) async fn within<T>(
    target: &Target,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let limit = target.config.timeout;
    let done = timeout(limit, work).await;
    done.unwrap_or_else(|_| Err(Cause::Silent(limit).into()))
}
