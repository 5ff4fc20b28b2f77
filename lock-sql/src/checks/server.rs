use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polylock_core::{HealthCheck, RuleOutcome, Status};

use super::{mysql, pooler, postgres};
use crate::config::{ServerKind, SqlMode};
use crate::error::{SqlCause, SqlFailure};
use crate::wire::{ConnectTarget, QueryResult, ServerConnection, Sql, SqlValue};

/// Checks a server and warns of faults; refuses one that cannot keep locks and, with strict checks,
/// every one with a fault.
pub(crate) async fn check(connection: &mut ServerConnection) -> Result<(), SqlFailure> {
    let checks = check_server(connection).await?;
    Ok(report(&checks, connection.target.config.strict)?)
}

fn report(checks: &[HealthCheck], strict: bool) -> Result<(), SqlCause> {
    match checks.iter().find(|check| check.status == Status::Error) {
        // A failover may promote it.
        Some(check) if check.id == REPLICA => Err(SqlCause::Unfit(check.to_string())),
        Some(check) => Err(SqlCause::Config(check.to_string())),
        None => HealthCheck::report(checks, strict).map_err(SqlCause::Config),
    }
}

pub(super) const REPLICA: &str = "replica";

/// Checks a server for a report; it creates nothing, and no fault is an error.
pub(crate) async fn check_health(
    target: &Arc<ConnectTarget>,
) -> Result<Vec<HealthCheck>, SqlFailure> {
    let mut found = Vec::new();
    found.extend(pooler::check_health(target).await?);
    let mut connection = ServerConnection::open_first(target).await?;
    found.extend(target.within(check_server(&mut connection)).await?);
    Ok(found)
}

async fn check_server(connection: &mut ServerConnection) -> Result<Vec<HealthCheck>, SqlFailure> {
    match connection.target.config.server {
        ServerKind::MySql => mysql::check(connection).await,
        ServerKind::Postgres => postgres::check(connection).await,
    }
}

pub(super) async fn ask(
    connection: &mut ServerConnection,
    question: &str,
) -> Result<QueryResult, SqlFailure> {
    let answer = connection.run(&Sql::new(question), &[]).await;
    answer.map_err(SqlFailure::of_statement)
}

/// What a server answers with names and values.
pub(super) async fn settings(
    connection: &mut ServerConnection,
    question: &str,
) -> Result<HashMap<String, String>, SqlFailure> {
    let answer = ask(connection, question).await?;
    let pair = |row: &Vec<_>| (text(row.first()).to_ascii_lowercase(), text(row.get(1)));
    Ok(answer.rows.iter().map(pair).collect())
}

/// A text of a row, empty if it is null.
pub(super) fn text(value: Option<&SqlValue>) -> String {
    let bytes = value.and_then(SqlValue::bytes).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// For the rule that [`clock`] judges.
pub(super) const CLOCK_IMPACT: &str =
    "a clock that is set by a jump ends leases early, or makes them stay";
pub(super) const CLOCK_FIX: &str = "run a time service that slews clocks on both machines";

/// Whether the clocks of the server and of this machine agree.
pub(super) fn clock(offset: Option<Duration>, mode: SqlMode) -> RuleOutcome {
    match offset {
        _ if mode != SqlMode::Lease => Status::Ok.because("no lock of this mode ends by a clock"),
        None => Status::NotChecked.because("the server does not tell its time"),
        Some(offset) if offset > MAX_OFFSET => Status::Warning.because(format!(
            "the clock of the server differs by {} s",
            offset.as_secs()
        )),
        Some(_) => Status::Ok.because("the clock of the server is set like this one"),
    }
}

/// Min difference between the clocks of a server and of this machine.
pub(super) fn clock_offset(asked: SystemTime, server: i64) -> Option<Duration> {
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
const MAX_OFFSET: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_refuses_and_that_of_a_replica_may_pass() {
        let warning = || HealthCheck::warning("x", "a", "b", "c");
        let error = |id| [warning(), HealthCheck::error(id, "a", "b", "c")];
        report(&[warning()], false).unwrap();
        let refusal = report(&[warning()], true).unwrap_err();
        assert!(
            matches!(refusal, SqlCause::Config(says) if says.ends_with("this server: a: b; c"))
        );
        let refusal = report(&error("x"), false).unwrap_err();
        assert!(matches!(refusal, SqlCause::Config(says) if says == "a: b; c"));
        let refusal = report(&error(REPLICA), false).unwrap_err();
        assert!(matches!(refusal, SqlCause::Unfit(_)));
    }
}
