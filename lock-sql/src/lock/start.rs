//! What happens before the first lock is taken.

use std::sync::Arc;

use lock_core::engine::Engine;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::checks;
#[cfg(feature = "mysql")]
use crate::config::Server;
use crate::config::SqlConfig;
use crate::error::{Cause, Failure};
use crate::schema;
#[cfg(feature = "mysql")]
use crate::wire::Class;
use crate::wire::{Connection, DbError, Target};

/// Looks at the server, and makes sure of the table.
pub(super) async fn start(target: &Arc<Target>, config: &SqlConfig) -> Result<(), Failure> {
    #[cfg(feature = "postgres")]
    checks::look_for_pooler(target, config).await?;
    let mut connection = open(target, config).await?;
    let checked = checks::check(&mut connection, target, config);
    within(config, checked).await?;
    let ensured = schema::ensure(&mut connection, config);
    within(config, ensured).await.map(drop)
}

/// Opens a connection for what comes before the others.
pub(crate) async fn open(target: &Arc<Target>, config: &SqlConfig) -> Result<Connection, Failure> {
    let opened = async {
        let opened = Connection::open(target).await;
        opened.map_err(|db_error| refusal(db_error, config))
    };
    within(config, opened).await
}

fn refusal(db_error: DbError, config: &SqlConfig) -> Failure {
    match config.server {
        #[cfg(feature = "mysql")]
        Server::MySql if db_error.class == Class::Denied && config.tls.is_none() => {
            let source = db_error.source;
            Cause::RefusedWithoutTls { source }.into()
        }
        _ => Failure::of_opening(db_error),
    }
}

/// Runs work in a task of the engine's: its connection is closed in order when the caller is dropped,
/// and any executor may wait for it.
pub(crate) async fn run_on<T: Send + 'static>(
    engine: &Engine,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let (reply, answer) = oneshot::channel();
    engine.spawn_service(async move { drop(reply.send(work.await)) });
    let gone = || Cause::Unfit("the runtime of the locks has ended".to_owned());
    answer.await.unwrap_or_else(|_| Err(gone().into()))
}

/// Gives a step of the start the time that a statement gets.
pub(crate) async fn within<T>(
    config: &SqlConfig,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let done = timeout(config.timeout, work).await;
    done.unwrap_or_else(|_| Err(Cause::Silent(config.timeout).into()))
}
