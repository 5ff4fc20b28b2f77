//! The table, and what this user may do with it.

use lock_core::HealthCheck;

use crate::config::{SqlConfig, SqlMode};
use crate::dialect::sequence;
use crate::schema::LAYOUT;

/// What there is where the table should be.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Whether the schema is there that has the table.
    pub(super) has_place: bool,
    /// None if the server does not tell.
    pub(super) exists: Option<bool>,
    /// Whether this user may make it; none if the server does not tell.
    pub(super) may_make: Option<bool>,
    /// Which rights this user has to it, of `SELECT`, `INSERT`, `UPDATE` and `DELETE`.
    pub(super) rights: Vec<&'static str>,
    /// Whether it may draw tokens from the sequence beside the table; none if that is not known.
    pub(super) may_draw: Option<bool>,
    pub(super) columns: Vec<String>,
    /// The table itself says so; none if it says nothing.
    pub(super) layout: Option<i64>,
    /// Whether a crash of the server empties it.
    pub(super) is_forgotten: bool,
}

/// What the configuration says of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// As SQL has it.
    pub(super) table: &'a str,
    pub(super) columns: &'a [&'static str],
    pub(super) is_made: bool,
    /// What a user needs to draw tokens, where a mode draws any.
    pub(super) tokens: Option<&'static str>,
}

impl<'a> Wanted<'a> {
    pub(super) fn of(config: &SqlConfig, table: &'a str, columns: &'a [&'static str]) -> Self {
        Self {
            table,
            columns,
            is_made: config.creates_table,
            tokens: match (config.mode, config.server.is_postgres()) {
                (SqlMode::Lease, _) => None,
                (_, true) => Some("grant SELECT and UPDATE on it to this user"),
                (_, false) => Some("grant SELECT and INSERT on it to this user"),
            },
        }
    }
}

pub(super) const RIGHTS: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

pub(super) fn rights(facts: &Facts, wanted: &Wanted<'_>) -> HealthCheck {
    let table = wanted.table;
    let has = |right: &&str| facts.rights.contains(right);
    if !facts.has_place {
        return HealthCheck::not_checked("rights", "there is no schema to have rights to");
    }
    match (facts.exists, facts.may_make) {
        (Some(true) | None, _) => {
            let missing: Vec<_> = RIGHTS[..3].iter().filter(|right| !has(right)).collect();
            // Another layout has other columns.
            if !missing.is_empty() && facts.layout.is_none_or(|layout| layout == LAYOUT) {
                let missing = missing.into_iter().copied().collect::<Vec<_>>().join(", ");
                return HealthCheck::error(
                    "rights",
                    format!("this user has no right to {missing} on the table {table}"),
                    "no lock can be taken",
                    "grant SELECT, INSERT and UPDATE on it to this user",
                );
            }
            if let (Some(false), Some(fix), Some(LAYOUT)) =
                (facts.may_draw, wanted.tokens, facts.layout)
            {
                let sequence = sequence(table);
                return HealthCheck::error(
                    "rights",
                    format!("this user may draw no tokens from {sequence}, or there is none"),
                    "no lock can be taken",
                    fix,
                );
            }
            let what = match has(&"DELETE") {
                true => "this user may SELECT, INSERT, UPDATE and DELETE",
                false => "this user may SELECT, INSERT and UPDATE; rows that nobody uses stay",
            };
            HealthCheck::ok("rights", what)
        }
        (Some(false), _) if !wanted.is_made => {
            HealthCheck::not_checked("rights", "there is no table to have rights to")
        }
        (Some(false), Some(true)) => HealthCheck::ok("rights", "this user may make the table"),
        (Some(false), Some(false)) => HealthCheck::error(
            "rights",
            format!("there is no table {table}, and this user may not make it"),
            "no lock can be taken",
            "somebody who may runs lockctl schema apply, or what lockctl schema print shows",
        ),
        (Some(false), None) => HealthCheck::not_checked(
            "rights",
            "the server does not tell whether this user may make it",
        ),
    }
}

pub(super) fn table(facts: &Facts, wanted: &Wanted<'_>) -> HealthCheck {
    let table = wanted.table;
    let error = |what: String, fix: &'static str| {
        HealthCheck::error("table", what, "no lock can be taken", fix)
    };
    if !facts.has_place {
        let what = format!("there is no schema for the table {table}");
        return error(what, "make it, or name another one by schema=NAME");
    }
    let other = "name another one by table=NAME, or use the version of polylock that made it";
    match facts.exists {
        None => HealthCheck::not_checked(
            "table",
            "the server does not tell this user whether it is there",
        ),
        Some(false) if wanted.is_made => {
            let what = format!("there is no table {table} yet, the first start makes it");
            HealthCheck::ok("table", what)
        }
        Some(false) => error(
            format!("there is no table {table}, and create-table=off"),
            "make it with lockctl schema apply, or run what lockctl schema print shows",
        ),
        Some(true) => {
            let has = |column: &&&str| facts.columns.iter().any(|found| found == *column);
            let missing = wanted.columns.iter().filter(|column| !has(column));
            let missing: Vec<_> = missing.copied().collect();
            // Another layout has other columns.
            if !missing.is_empty() && facts.layout.is_none_or(|layout| layout == LAYOUT) {
                let missing = missing.join(", ");
                return error(format!("the table {table} has no columns {missing}"), other);
            }
            match facts.layout {
                Some(LAYOUT) | None if facts.is_forgotten => HealthCheck::warning(
                    "table",
                    format!("the table {table} is unlogged"),
                    "a crash of the server empties it: leases are granted twice",
                    "ALTER TABLE .. SET LOGGED",
                ),
                Some(LAYOUT) => {
                    let what = format!("the table {table} is there, with layout {LAYOUT}");
                    HealthCheck::ok("table", what)
                }
                Some(layout) => error(
                    format!(
                        "the table {table} has layout {layout}, and this version knows layout \
                         {LAYOUT}"
                    ),
                    other,
                ),
                None if facts.rights.contains(&"SELECT") => {
                    let what =
                        format!("the table {table} does not say its layout, a start does so");
                    HealthCheck::ok("table", what)
                }
                None => HealthCheck::not_checked("table", "this user may not read it"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Status;

    use super::*;

    const COLUMNS: [&str; 2] = ["kind", "lock_key"];
    const WANTED: Wanted<'_> = Wanted {
        table: "t",
        columns: &COLUMNS,
        is_made: true,
        tokens: Some("grant it"),
    };

    fn good() -> Facts {
        Facts {
            has_place: true,
            exists: Some(true),
            may_make: Some(false),
            rights: RIGHTS.to_vec(),
            may_draw: Some(true),
            columns: ["more", "lock_key", "kind"].map(str::to_owned).to_vec(),
            layout: Some(LAYOUT),
            is_forgotten: false,
        }
    }

    #[test]
    fn each_fault_of_a_table_is_found_by_itself() {
        use Status::{Error, NotChecked, Ok, Warning};
        type Change = fn(&mut Facts);
        let cases: [(Change, Status, Status, &str); 14] = [
            (|_| (), Ok, Ok, "with layout"),
            (
                |facts| facts.rights.truncate(3),
                Ok,
                Ok,
                "rows that nobody uses stay",
            ),
            (
                |facts| facts.rights.truncate(1),
                Error,
                Ok,
                "no right to INSERT, UPDATE",
            ),
            (
                |facts| facts.may_draw = Some(false),
                Error,
                Ok,
                "draw no tokens",
            ),
            (|facts| facts.layout = Some(7), Ok, Error, "layout 7"),
            (
                |facts| (facts.layout, facts.columns) = (Some(1), vec![]),
                Ok,
                Error,
                "layout 1",
            ),
            (|facts| facts.layout = None, Ok, Ok, "does not say"),
            (|facts| facts.is_forgotten = true, Ok, Warning, "unlogged"),
            (
                |facts| facts.columns.truncate(1),
                Ok,
                Error,
                "no columns kind, lock_key",
            ),
            (
                |facts| facts.has_place = false,
                NotChecked,
                Error,
                "no schema",
            ),
            (
                |facts| (facts.exists, facts.rights) = (None, vec![]),
                Error,
                NotChecked,
                "SELECT",
            ),
            (
                |facts| facts.exists = Some(false),
                Error,
                Ok,
                "may not make it",
            ),
            (
                |facts| (facts.exists, facts.may_make) = (Some(false), Some(true)),
                Ok,
                Ok,
                "no table t yet",
            ),
            (
                |facts| (facts.exists, facts.may_make) = (Some(false), None),
                NotChecked,
                Ok,
                "does not tell",
            ),
        ];
        for (change, of_rights, of_table, says) in cases {
            let mut facts = good();
            change(&mut facts);
            let found = [rights(&facts, &WANTED), table(&facts, &WANTED)];
            let statuses = [found[0].status, found[1].status];
            assert_eq!(statuses, [of_rights, of_table], "{says}: {found:?}");
            let said = found.map(|health| health.to_string()).join("\n");
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn a_table_that_is_not_to_be_made_has_to_be_there() {
        let mut facts = good();
        facts.exists = Some(false);
        let wanted = Wanted {
            is_made: false,
            ..WANTED
        };
        assert_eq!(rights(&facts, &wanted).status, Status::NotChecked);
        let found = table(&facts, &wanted);
        assert!(found.status == Status::Error && found.summary.contains("create-table=off"));
    }
}
