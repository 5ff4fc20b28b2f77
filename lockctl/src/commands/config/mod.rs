//! `config`: what a configuration file says, and what is wrong with it.

mod json;

use std::env;
use std::path::{Path, PathBuf};

use polylock::config::{Config, ConfigErrors, Origin, Scope, schema};

use super::App;
use crate::args::{ConfigArgs, ConfigCommand};
use crate::backend::{failure, loader};
use crate::exit::Exit;
use crate::output::{Failure, escaped, plain_table, print, print_json};

pub(super) fn config(app: &App, args: &ConfigArgs) -> Result<Exit, Failure> {
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
fn check(app: &App, path: &Path, scope: Scope) -> Result<Exit, Failure> {
    let loaded = load(app, path, scope);
    if app.wants_json() {
        print_json(&json::checked(path, &loaded))?;
    } else {
        print(&checked(path, &loaded))?;
    }
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
        Err(errors) => (lines(errors), &[][..]),
    };
    for warning in warnings {
        out += &format!("warning: {}", lines(warning));
    }
    if let Ok(config) = loaded {
        let (backends, classes) = (config.backends().count(), config.classes().count());
        out += &format!(
            "{}: no errors; backends: {backends}, classes: {classes}\n",
            escaped(&path.display().to_string())
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

/// Prints every value with its origin.
fn show(app: &App, file: Option<&PathBuf>) -> Result<Exit, Failure> {
    let path = path(app, file)?;
    let config = load(app, &path, Scope::Program).map_err(|errors| failure(&errors))?;
    if app.wants_json() {
        print_json(&json::shown(&path, &config))?;
        return Ok(Exit::Success);
    }
    let mut table = plain_table();
    table.set_header(["KEY", "VALUE", "FROM"]);
    let name = path.display().to_string();
    for setting in config.effective() {
        let from = match &setting.origin {
            Origin::File { line } => format!("{name}:{line}"),
            origin => origin.to_string(),
        };
        table.add_row([&setting.key, &setting.value, &from].map(|cell| escaped(cell)));
    }
    print(&format!("{table}\n"))?;
    for warning in config.warnings() {
        app.console.warn(escaped(warning.message()));
    }
    Ok(Exit::Success)
}

fn path(app: &App, file: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    let path = file.or(app.global.config.as_ref());
    path.filter(|path| !path.as_os_str().is_empty())
        .cloned()
        .ok_or_else(|| {
            Failure::new(Exit::Usage, "there is no configuration file")
                .with_hint("name it, give --config FILE, or set LOCK_CONFIG")
        })
}
