//! `config`: what a configuration file says, and what is wrong with it.

use std::env;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use polylock::config::{Config, ConfigError, ConfigErrors, Origin, Scope, Setting, schema};
use serde_json::{Value, json};

use super::app::App;
use crate::backend::{failure, loader};
use crate::exit::Exit;
use crate::output::{
    CommandFailure, escaped, flush_left, path_text, plain_table, print, print_json,
};

/// Check or show a configuration file, or print its schema
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report every error of the file: exit 0 if there are none, 78 if there are
    Check {
        /// File to check [default: that of --config]
        file: Option<PathBuf>,
        /// Unused backends must be right as well
        #[arg(long)]
        all: bool,
    },
    /// Print the JSON schema of the file, for editors
    Schema,
    /// Print every value and where it comes from, without secrets
    Show {
        /// File to show [default: that of --config]
        file: Option<PathBuf>,
    },
}

pub(super) fn config(app: &App, args: &ConfigArgs) -> Result<Exit, CommandFailure> {
    match &args.command {
        ConfigCommand::Check { file, all } => {
            let scope = match all {
                true => Scope::All,
                false => Scope::Program,
            };
            check(app, &path(app, file.as_ref())?, scope)
        }
        ConfigCommand::Schema => {
            print(&format!("{:#}\n", schema()))?;
            Ok(Exit::Success)
        }
        ConfigCommand::Show { file } => show(app, file.as_ref()),
    }
}

/// Prints all errors on standard output: they are the answer.
fn check(app: &App, path: &Path, scope: Scope) -> Result<Exit, CommandFailure> {
    let loaded = load(app, path, scope);
    app.answer(&checked_json(path, &loaded), || checked(path, &loaded))?;
    Ok(match loaded {
        Ok(_) => Exit::Success,
        Err(_) => Exit::Config,
    })
}

fn load(app: &App, path: &Path, scope: Scope) -> Result<Config, ConfigErrors> {
    let loader = loader(&app.global, |name: &str| env::var_os(name));
    loader.with_scope(scope).load(path)
}

fn checked(path: &Path, loaded: &Result<Config, ConfigErrors>) -> String {
    let (mut out, warnings) = match loaded {
        Ok(config) => (String::new(), config.warnings()),
        Err(errors) => (lines(errors), errors.warnings()),
    };
    for warning in warnings {
        out += &format!("warning: {}", lines(warning));
    }
    if let Ok(config) = loaded {
        let (backends, classes) = (config.backends().len(), config.classes().len());
        out += &format!(
            "{}: no errors; backends: {backends}, classes: {classes}\n",
            escaped(&path_text(path))
        );
    }
    out
}

/// A text of several lines, each without what steers a terminal.
fn lines(text: &impl ToString) -> String {
    let text = text.to_string();
    text.lines()
        .map(|line| format!("{}\n", escaped(line)))
        .collect()
}

fn show(app: &App, file: Option<&PathBuf>) -> Result<Exit, CommandFailure> {
    let path = path(app, file)?;
    let config = load(app, &path, Scope::Program).map_err(|errors| failure(&errors))?;
    if app.wants_json() {
        let settings: Vec<_> = config.effective().iter().map(setting_json).collect();
        let warnings: Vec<_> = config.warnings().iter().map(error_json).collect();
        let file = path_text(&path);
        print_json(&json!({ "file": file, "settings": settings, "warnings": warnings }))?;
        return Ok(Exit::Success);
    }
    let mut table = plain_table();
    table.set_header(["KEY", "VALUE", "FROM"]);
    let name = path_text(&path);
    for setting in config.effective() {
        let from = match &setting.origin {
            Origin::File { line } => format!("{name}:{line}"),
            origin => origin.to_string(),
        };
        table.add_row([&setting.key, &setting.value, &from].map(|cell| escaped(cell)));
    }
    print(&flush_left(&mut table))?;
    for warning in config.warnings() {
        app.console.warn(escaped(&warning.to_string()));
    }
    Ok(Exit::Success)
}

fn path(app: &App, file: Option<&PathBuf>) -> Result<PathBuf, CommandFailure> {
    let path = file.or(app.global.config.as_ref());
    path.filter(|path| !path.as_os_str().is_empty())
        .cloned()
        .ok_or_else(|| {
            CommandFailure::new(Exit::Usage, "there is no configuration file")
                .with_hint("name it, give --config FILE, or set LOCK_CONFIG")
        })
}

fn checked_json(path: &Path, loaded: &Result<Config, ConfigErrors>) -> Value {
    let (errors, warnings) = match loaded {
        Ok(config) => (&[][..], config.warnings()),
        Err(errors) => (errors.all(), errors.warnings()),
    };
    let [errors, warnings] = [errors, warnings].map(|all| -> Vec<_> {
        let all = all.iter();
        all.map(error_json).collect()
    });
    json!({
        "file": path_text(path),
        "ok": loaded.is_ok(),
        "errors": errors,
        "warnings": warnings,
    })
}

fn error_json(error: &ConfigError) -> Value {
    let mut value = origin_json(&error.origin);
    value["line"] = error.position.map(|(line, _)| line).into();
    value["column"] = error.position.map(|(_, column)| column).into();
    value["message"] = error.message.as_str().into();
    value
}

fn setting_json(setting: &Setting) -> Value {
    let mut value = origin_json(&setting.origin);
    value["key"] = setting.key.as_str().into();
    value["value"] = setting.value.as_str().into();
    value
}

fn origin_json(origin: &Origin) -> Value {
    let (kind, line, variable) = match origin {
        Origin::Environment { variable } => ("env", None, Some(variable)),
        Origin::File { line } => ("file", Some(line), None),
        Origin::Flag => ("flag", None, None),
        _ => ("default", None, None),
    };
    json!({ "from": kind, "line": line, "variable": variable })
}
