//! What is looked at before a server gets locks to keep.

mod finding;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod pooler;
#[cfg(feature = "postgres")]
mod postgres;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::finding::report;
#[cfg(feature = "postgres")]
pub(crate) use self::pooler::look_for_pooler;
use crate::config::{Server, SqlConfig};
use crate::error::Failure;
use crate::wire::{Connection, Target, Value};

/// Looks at a server, and warns of what it finds; refuses one that cannot keep locks and, with strict
/// checks, every one that is not fit for them.
pub(crate) async fn check(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<(), Failure> {
    let found = match config.server {
        #[cfg(feature = "mysql")]
        Server::MySql => mysql::check(connection, target, config).await?,
        #[cfg(feature = "postgres")]
        Server::Postgres => postgres::check(connection, target, config).await?,
    };
    Ok(report(found, config.strict)?)
}

/// By how much the clock of a server differs from that of this machine, at least.
fn clock_offset(asked: SystemTime, server: i64) -> Option<Duration> {
    let micros = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_micros()).ok()
    };
    // It has read its clock between these two.
    let (sent, received) = (micros(asked)?, micros(SystemTime::now())?);
    let early = sent.saturating_sub(server);
    let late = server.saturating_sub(received);
    let offset = early.max(late).max(0);
    Some(Duration::from_micros(offset.unsigned_abs()))
}

/// A clock that differs by more is not set by a time service.
const MOST_OFFSET: Duration = Duration::from_secs(1);

/// A text of a row, empty if it is null.
fn text(value: Option<&Value>) -> String {
    let bytes = value.and_then(Value::bytes).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}
