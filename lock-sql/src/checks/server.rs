use std::collections::HashMap;
use std::sync::Arc;

use polylock_core::{HealthCheck, Status};

#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "postgres")]
use super::{pooler, postgres};
use crate::config::{Server, SqlConfig};
use crate::error::{Cause, Failure};
use crate::lock::{open, within};
use crate::wire::{Answer, Connection, Sql, Target, Value};

/// Checks a server and warns of faults; refuses one that cannot keep locks and, with strict checks,
/// every one with a fault.
pub(crate) async fn check(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<(), Failure> {
    let checks = check_server(connection, target, config).await?;
    Ok(report(&checks, config.strict)?)
}

fn report(checks: &[HealthCheck], strict: bool) -> Result<(), Cause> {
    match checks.iter().find(|check| check.status == Status::Error) {
        // A failover may promote it.
        Some(check) if check.id == REPLICA => Err(Cause::Unfit(check.to_string())),
        Some(check) => Err(Cause::Config(check.to_string())),
        None => HealthCheck::report(checks, strict).map_err(Cause::Config),
    }
}

pub(super) const REPLICA: &str = "replica";

/// Checks a server for a report; it creates nothing, and no fault is an error.
pub(crate) async fn check_health(
    target: &Arc<Target>,
    config: &SqlConfig,
) -> Result<Vec<HealthCheck>, Failure> {
    let mut found = Vec::new();
    #[cfg(feature = "postgres")]
    found.extend(pooler::check_health(target, config).await?);
    let mut connection = open(target, config).await?;
    let checks = check_server(&mut connection, target, config);
    found.extend(within(config, checks).await?);
    Ok(found)
}

async fn check_server(
    connection: &mut Connection,
    target: &Target,
    config: &SqlConfig,
) -> Result<Vec<HealthCheck>, Failure> {
    match config.server {
        #[cfg(feature = "mysql")]
        Server::MySql => mysql::check(connection, target, config).await,
        #[cfg(feature = "postgres")]
        Server::Postgres => postgres::check(connection, target, config).await,
    }
}

pub(super) async fn ask(connection: &mut Connection, question: &str) -> Result<Answer, Failure> {
    let answer = connection.message(&Sql::new(question), &[]).await;
    answer.map_err(Failure::of_statement)
}

/// What a server answers with names and values.
pub(super) async fn settings(
    connection: &mut Connection,
    question: &str,
) -> Result<HashMap<String, String>, Failure> {
    let answer = ask(connection, question).await?;
    let pair = |row: &Vec<_>| (text(row.first()).to_ascii_lowercase(), text(row.get(1)));
    Ok(answer.rows.iter().map(pair).collect())
}

/// A text of a row, empty if it is null.
pub(super) fn text(value: Option<&Value>) -> String {
    let bytes = value.and_then(Value::bytes).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_refuses_and_that_of_a_replica_may_pass() {
        let warning = || HealthCheck::warning("x", "a", "b", "c");
        let error = |id| [warning(), HealthCheck::error(id, "a", "b", "c")];
        report(&[warning()], false).unwrap();
        let refusal = report(&[warning()], true).unwrap_err();
        assert!(matches!(refusal, Cause::Config(says) if says.ends_with("this server: a: b; c")));
        let refusal = report(&error("x"), false).unwrap_err();
        assert!(matches!(refusal, Cause::Config(says) if says == "a: b; c"));
        let refusal = report(&error(REPLICA), false).unwrap_err();
        assert!(matches!(refusal, Cause::Unfit(_)));
    }
}
