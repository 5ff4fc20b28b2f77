use lock_core::Finding;

use super::more;
use crate::checks::connections::Room;
use crate::checks::{ask, table, text};
use crate::config::SqlConfig;
use crate::dialect::mysql::schema::{COLUMNS, layout};
use crate::dialect::sequence;
use crate::error::Failure;
use crate::wire::{Class, Connection, Sql, Value};

/// Says what there is where the table should be, and what this user may do there.
pub(super) async fn table(
    connection: &mut Connection,
    config: &SqlConfig,
) -> Result<[Finding; 3], Failure> {
    let (name, plain) = (config.table_sql(), config.table.as_str());
    let mut facts = table::Facts {
        has_place: true,
        ..table::Facts::default()
    };
    match connection.message(&Sql::new(layout(&name)), &[]).await {
        Ok(answer) => (facts.exists, facts.layout) = (Some(true), answer.int(0)),
        Err(trouble) if trouble.class.ends_connection() => {
            return Err(Failure::of_statement(trouble));
        }
        Err(trouble) if trouble.class == Class::NoTable => facts.exists = Some(false),
        // It says no more of a table to those who may not read it.
        Err(trouble) if trouble.class == Class::Denied => facts.exists = None,
        Err(_) => facts.exists = Some(true),
    }
    let mut engine = None;
    if facts.exists == Some(false) {
        facts.may_make = may_make(connection, plain).await?;
    } else {
        facts.rights = rights(connection, &name).await?;
        facts.may_draw = Some(may_draw(connection, &name).await?);
        facts.columns = texts(connection, &columns(plain)).await?;
        engine = texts(connection, &engine_of(plain))
            .await?
            .into_iter()
            .next();
    }
    let engines = ask(connection, ENGINES).await?;
    let engines = engines.and_then(|answer| answer.int(0));
    let has_innodb = engines.map(|count| count > 0);
    let wanted = table::Wanted::of(config, &name, &COLUMNS);
    Ok([
        more::engine(engine.as_deref(), has_innodb, config.mode),
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
            Err(trouble) if trouble.class.ends_connection() => {
                return Err(Failure::of_statement(trouble));
            }
            Err(trouble) if trouble.class == Class::Denied => {}
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
        Err(trouble) if trouble.class.ends_connection() => Err(Failure::of_statement(trouble)),
        Err(trouble) => Ok(!matches!(trouble.class, Class::Denied | Class::NoTable)),
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

fn engine_of(table: &str) -> String {
    format!(
        "SELECT engine FROM information_schema.tables
         WHERE table_schema = DATABASE() AND table_name = '{table}'"
    )
}

const ENGINES: &str = "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.engines
    WHERE engine = 'InnoDB' AND support IN ('YES', 'DEFAULT')";

/// The first column of an answer.
async fn texts(connection: &mut Connection, question: &str) -> Result<Vec<String>, Failure> {
    let answer = ask(connection, question).await?;
    let rows = answer.map(|answer| answer.rows).unwrap_or_default();
    Ok(rows.iter().map(|row| text(row.first())).collect())
}

/// How many connections there are for this user, besides the one that asks.
pub(super) async fn rooms(
    connection: &mut Connection,
    most: Option<i64>,
) -> Result<Vec<Room>, Failure> {
    let answer = ask(connection, "SHOW GLOBAL STATUS LIKE 'Threads_connected'").await?;
    let row = answer.and_then(|answer| answer.rows.into_iter().next());
    let taken = text(row.as_ref().and_then(|row| row.get(1)));
    let mut rooms = Vec::new();
    if let (Some(most), Ok(taken)) = (most, taken.parse::<i64>()) {
        let taken = taken - 1;
        rooms.push(Room { most, taken });
    }
    // Those of this user, which may always see its own.
    let own = ask(connection, OWN).await?;
    let row = own.and_then(|answer| answer.rows.into_iter().next());
    let [most, taken] = [0, 1].map(|at| row.as_ref()?.get(at).and_then(Value::int));
    if let (Some(most @ 1..), Some(taken)) = (most, taken) {
        let taken = taken - 1;
        rooms.push(Room { most, taken });
    }
    Ok(rooms)
}

const OWN: &str = "SELECT CAST(@@max_user_connections AS SIGNED),
    (SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.processlist
     WHERE user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1))";
