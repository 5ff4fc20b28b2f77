//! Detects a pooler in front of PostgreSQL that gives each transaction another connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use polylock_core::HealthCheck;
use tokio::time::timeout;

use crate::config::{POOLED_ADVISORY, SqlMode};
use crate::error::{SqlCause, SqlFailure};
use crate::wire::{ConnectTarget, DbError, ServerConnection, Sql};

/// Tests for a pooler in front of PostgreSQL, unless the configuration declares one.
///
/// Runs before any other connection opens, because settings of a connection would stay with the pooler.
pub(crate) async fn look_for_pooler(target: &Arc<ConnectTarget>) -> Result<(), SqlFailure> {
    let mode = target.config.mode;
    if target.is_pooled() {
        return Ok(());
    }
    let path = look(target).await?;
    if !path.keeps(mode) {
        let message = match (path, mode) {
            (Path::Statements, SqlMode::Row) => REFUSES_TRANSACTIONS,
            _ => POOLED_ADVISORY,
        };
        return Err(SqlCause::Config(message.to_owned()).into());
    }
    if path != Path::Direct {
        tracing::debug!("a transaction pooler is in the path, statements are not prepared");
        target.is_pooled.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Reports the pooler in the path to PostgreSQL, also before any other connection opens.
pub(super) async fn check_health(
    target: &Arc<ConnectTarget>,
) -> Result<Option<HealthCheck>, SqlFailure> {
    if !target.config.server.is_postgres() {
        return Ok(None);
    }
    if target.is_pooled() {
        let what = "the URL names a transaction pooler, and it is not looked for";
        return Ok(Some(HealthCheck::ok("pooler", what)));
    }
    let path = look(target).await?;
    target
        .is_pooled
        .store(path != Path::Direct, Ordering::Relaxed);
    Ok(Some(finding(path, target.config.mode)))
}

async fn look(target: &Arc<ConnectTarget>) -> Result<Path, SqlFailure> {
    let probed = async {
        let probed = probe(target).await;
        probed.map_err(|db_error| target.refusal(db_error))
    };
    target.within(probed).await
}

fn finding(path: Path, mode: SqlMode) -> HealthCheck {
    let what = match path {
        Path::Direct => "no transaction pooler is in the path",
        Path::Statements => "a pooler is in the path that gives each statement another connection",
        Path::Transactions => "a transaction pooler is in the path",
    };
    if path.keeps(mode) {
        return HealthCheck::ok("pooler", what);
    }
    let impact = match mode {
        SqlMode::Row => "it refuses the transactions that row locks are",
        _ => "it gives the session of an advisory lock to others, who have the lock then",
    };
    let fix = "connect to the server itself, or to a port of the pooler in session mode, or use \
                   mode=lease";
    HealthCheck::error("pooler", what, impact, fix)
}

const REFUSES_TRANSACTIONS: &str =
    "a pooler is in the path that refuses transactions, use mode=lease";

/// The pooler between a client and the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Path {
    /// None, or one that keeps a server connection for each client.
    Direct,
    /// One that gives each statement another connection.
    Statements,
    /// One that gives each transaction another connection.
    Transactions,
}

impl Path {
    /// Whether locks of this mode work through it.
    fn keeps(self, mode: SqlMode) -> bool {
        match self {
            Self::Direct => true,
            Self::Statements => mode == SqlMode::Lease,
            Self::Transactions => mode != SqlMode::Advisory,
        }
    }
}

/// Asks two connections for their server process, the second one inside a transaction.
///
/// A pooler may give the process of the first connection to the second, give another one to the first
/// while that is in use, or make the first wait. No setting marks a process: it would stay with the
/// pooler, or make it keep a process for this client.
async fn probe(target: &Arc<ConnectTarget>) -> Result<Path, DbError> {
    if !target.config.server.is_postgres() {
        return Ok(Path::Direct);
    }
    let mut first = ServerConnection::open(target).await?;
    let mut second = ServerConnection::open(target).await?;
    let mine = process(&mut first).await?;
    for _ in 0..ROUNDS {
        if let Err(db_error) = second.run(&Sql::new("BEGIN"), &[]).await {
            // The reply is from a pooler: the server knows the statement.
            return match &*db_error.source {
                sqlx::Error::Database(_) => Ok(Path::Statements),
                _ => Err(db_error),
            };
        }
        let other = process(&mut second).await?;
        let meanwhile = timeout(target.config.timeout / 2, process(&mut first)).await;
        // The second connection replies, so the first one waits for it, or has another process.
        second.run(&Sql::new("ROLLBACK"), &[]).await?;
        let Ok(meanwhile) = meanwhile else {
            return Ok(Path::Transactions);
        };
        // Twice, to detect processes that alternate.
        let afterwards = [process(&mut first).await?, process(&mut first).await?];
        if other == mine || meanwhile? != mine || afterwards != [mine; 2] {
            return Ok(Path::Transactions);
        }
    }
    Ok(Path::Direct)
}

/// A busy pooler may by chance behave like none.
const ROUNDS: usize = 3;

async fn process(connection: &mut ServerConnection) -> Result<Option<i64>, DbError> {
    let process = Sql::new("SELECT pg_backend_pid()::bigint");
    Ok(connection.run(&process, &[]).await?.int(0))
}
