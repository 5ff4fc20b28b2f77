//! `schema`: the table that a database keeps its locks in.

use clap::{Args, Subcommand};
use polylock::sql::Applied;
use serde_json::json;

use super::app::App;
use crate::exit::Exit;
use crate::output::CommandFailure;

/// Show or make the table that a database keeps its locks in
///
/// For programs that may not create tables. They need SELECT, INSERT and UPDATE on the table, and
/// DELETE if unused rows are to be removed; with mode=row and mode=advisory, on the sequence
/// of the tokens SELECT and UPDATE (PostgreSQL), or SELECT and INSERT (MySQL and MariaDB).
#[derive(Args, Debug)]
pub(crate) struct SchemaArgs {
    #[command(subcommand)]
    pub(crate) command: SchemaCommand,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// Make the table, unless it is there
    Apply,
    /// Print the statements that make the table, without connecting
    Print,
}

pub(super) async fn schema(app: &App, args: &SchemaArgs) -> Result<Exit, CommandFailure> {
    let schema = app.backend()?.schema()?;
    let table = schema.table();
    match args.command {
        SchemaCommand::Print => {
            let sql = schema.sql();
            app.answer(&json!({ "table": table, "sql": sql }), || sql)?;
        }
        SchemaCommand::Apply => {
            let is_new = schema.apply().await? == Applied::Created;
            let state = if is_new { "created" } else { "there" };
            let answer = json!({ "table": table, "created": is_new });
            app.answer(&answer, || format!("table {table} is {state}\n"))?;
        }
    }
    Ok(Exit::Success)
}
