use lock_core::HealthCheck;

use crate::checks::{ask, table, text};
use crate::config::SqlConfig;
use crate::dialect::mysql::schema::{COLUMNS, layout};
use crate::dialect::sequence;
use crate::error::Failure;
use crate::wire::{Class, Connection, Sql};

/// Says what there is where the table should be, and what this user may do there.
pub(super) async fn table(
    connection: &mut Connection,
    config: &SqlConfig,
) -> Result<[HealthCheck; 2], Failure> {
    let (name, plain) = (config.table_sql(), config.table.as_str());
    let mut facts = table::Facts {
        has_place: true,
        ..table::Facts::default()
    };
    match connection.message(&Sql::new(layout(&name)), &[]).await {
        Ok(answer) => (facts.exists, facts.layout) = (Some(true), answer.int(0)),
        Err(db_error) if db_error.class.ends_connection() => {
            return Err(Failure::of_statement(db_error));
        }
        Err(db_error) if db_error.class == Class::NoTable => facts.exists = Some(false),
        // Users without the right to read a table see no more of it.
        Err(db_error) if db_error.class == Class::Denied => facts.exists = None,
        Err(_) => facts.exists = Some(true),
    }
    if facts.exists == Some(false) {
        facts.may_make = may_make(connection, plain).await?;
    } else {
        facts.rights = rights(connection, &name).await?;
        facts.may_draw = Some(may_draw(connection, &name).await?);
        facts.columns = texts(connection, &columns(plain)).await?;
    }
    let wanted = table::Wanted::of(config, &name, &COLUMNS);
    Ok([
        table::rights(&facts, &wanted),
        table::table(&facts, &wanted),
    ])
}

/// Which statements the server would take; none of them runs.
async fn rights(connection: &mut Connection, table: &str) -> Result<Vec<&'static str>, Failure> {
    let mut rights = Vec::new();
    for (right, statement) in table::RIGHTS.into_iter().zip([
        format!("EXPLAIN SELECT token FROM {table}"),
        format!("EXPLAIN INSERT INTO {table} (kind, lock_key) VALUES (0, '')"),
        format!("EXPLAIN UPDATE {table} SET token = 1"),
        format!("EXPLAIN DELETE FROM {table}"),
    ]) {
        match connection.message(&Sql::new(statement), &[]).await {
            Err(db_error) if db_error.class.ends_connection() => {
                return Err(Failure::of_statement(db_error));
            }
            Err(db_error) if db_error.class == Class::Denied => {}
            // What else is wrong with it is no question of rights.
            Ok(_) | Err(_) => rights.push(right),
        }
    }
    Ok(rights)
}

/// Whether the server would draw a token; it draws none.
async fn may_draw(connection: &mut Connection, table: &str) -> Result<bool, Failure> {
    let sequence = sequence(table);
    let statement = format!(
        "EXPLAIN /*M!100300 SELECT NEXTVAL({sequence}) */ \
         /*!80000 INSERT INTO {sequence} () VALUES () */"
    );
    match connection.message(&Sql::new(statement), &[]).await {
        Err(db_error) if db_error.class.ends_connection() => Err(Failure::of_statement(db_error)),
        Err(db_error) => Ok(!matches!(db_error.class, Class::Denied | Class::NoTable)),
        Ok(_) => Ok(true),
    }
}

/// A right that a role gives is not seen here.
async fn may_make(connection: &mut Connection, table: &str) -> Result<Option<bool>, Failure> {
    let mine = "privilege_type = 'CREATE' AND REPLACE(grantee, '''', '') = CURRENT_USER()";
    let of = "information_schema";
    let count = format!(
        "SELECT CAST((SELECT COUNT(*) FROM {of}.user_privileges WHERE {mine})
             + (SELECT COUNT(*) FROM {of}.schema_privileges
                WHERE {mine} AND DATABASE() LIKE table_schema)
             + (SELECT COUNT(*) FROM {of}.table_privileges
                WHERE {mine} AND table_schema = DATABASE() AND table_name = '{table}') AS SIGNED)"
    );
    let count = ask(connection, count).await?;
    if count.and_then(|answer| answer.int(0)) > Some(0) {
        return Ok(Some(true));
    }
    let role = texts(connection, "SELECT CURRENT_ROLE()").await?;
    let has_role = role
        .iter()
        .any(|role| !["", "NONE"].contains(&role.as_str()));
    Ok((!has_role).then_some(false))
}

/// The name is of letters, digits and underscores.
fn columns(table: &str) -> String {
    format!(
        "SELECT column_name FROM information_schema.columns
         WHERE table_schema = DATABASE() AND table_name = '{table}'"
    )
}

/// The first column of an answer.
async fn texts(connection: &mut Connection, question: &str) -> Result<Vec<String>, Failure> {
    let answer = ask(connection, question).await?;
    let rows = answer.map(|answer| answer.rows).unwrap_or_default();
    Ok(rows.iter().map(|row| text(row.first())).collect())
}
