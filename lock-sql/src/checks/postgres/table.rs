use lock_core::HealthCheck;

use crate::checks::{ask, table, text};
use crate::config::SqlConfig;
use crate::dialect::postgres::schema::{COLUMNS, layout};
use crate::dialect::sequence;
use crate::error::Failure;
use crate::wire::{Answer, Connection};

/// Says what there is where the table should be, and what this user may do there.
pub(super) async fn table(
    connection: &mut Connection,
    config: &SqlConfig,
) -> Result<[HealthCheck; 2], Failure> {
    let name = config.table_sql();
    let schema = config.schema.as_ref().map_or("", |schema| schema.as_str());
    let looked = ask(connection, look(schema, config.table.as_str(), &name)).await?;
    let Some(answer) = looked else {
        let unknown = |check| HealthCheck::not_checked(check, "the server does not tell this user");
        return Ok([unknown("rights"), unknown("table")]);
    };
    let mut facts = read(&answer);
    if facts.exists == Some(true) && facts.rights.contains(&"SELECT") {
        let layout = ask(connection, layout(&name)).await?;
        facts.layout = layout.and_then(|answer| answer.int(0));
    }
    let wanted = table::Wanted::of(config, &name, &COLUMNS);
    Ok([
        table::rights(&facts, &wanted),
        table::table(&facts, &wanted),
    ])
}

/// The names are of letters, digits and underscores.
fn look(schema: &str, table: &str, quoted: &str) -> String {
    let sequence = sequence(quoted);
    let rights = table::RIGHTS.map(|right| {
        format!(
            "(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, '{right}'))::int::bigint"
        )
    });
    format!(
        "SELECT (n.oid IS NOT NULL)::int::bigint, (c.oid IS NOT NULL)::int::bigint,
             has_schema_privilege(n.oid, 'CREATE')::int::bigint,
             (c.relpersistence = 'u')::int::bigint,
             (SELECT string_agg(a.attname::text, ',') FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
             {},
             (CASE WHEN has_schema_privilege(n.oid, 'USAGE') THEN
                 coalesce(has_sequence_privilege(to_regclass('{sequence}'), 'SELECT')
                     AND has_sequence_privilege(to_regclass('{sequence}'), 'UPDATE'), false)
              END)::int::bigint
         FROM (SELECT 1) one
         LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = '{schema}'
         LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = '{table}'",
        rights.join(", ")
    )
}

fn read(answer: &Answer) -> table::Facts {
    let is = |column: usize| answer.int(column) == Some(1);
    let columns = text(answer.rows.first().and_then(|row| row.get(4)));
    let rights = table::RIGHTS.iter().enumerate();
    let rights = rights.filter(|(at, _)| is(5 + at));
    table::Facts {
        has_place: is(0),
        exists: Some(is(1)),
        may_make: Some(is(2)),
        rights: rights.map(|(_, right)| *right).collect(),
        may_draw: answer.int(9).map(|may| may == 1),
        columns: columns.split(',').map(str::to_owned).collect(),
        layout: None,
        is_forgotten: is(3),
    }
}
