//! The targets to measure.

use std::env;

use polylock_bench::target::{Openers, Target};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use super::args::MeasureArgs;
use super::failure;
use crate::backend::{BackendUrl, in_namespace, sqlite_url};
use crate::commands::app::App;
use crate::exit::Exit;
use crate::output::{CommandFailure, escaped};

/// Takes the targets that are named; else the one of `--backend`, `--config`, `--default-backend` or
/// `--class`, though not of variables, which are set for other commands; else memory and a SQLite file.
/// Returns the directory of that file too; dropping it deletes the file.
pub(super) fn choose(
    app: &App,
    args: &MeasureArgs,
) -> Result<(Vec<Target>, Option<TempDir>), CommandFailure> {
    let mut named = Vec::new();
    for text in &args.targets {
        let (name, place) = name_and_place(text.expose_secret())?;
        named.push((name.to_owned(), url_at(app, place)?));
    }
    for text in &args.urls {
        let text = text.expose_secret();
        let url = url_at(app, text)?;
        let name = text.strip_prefix(BACKEND).map(str::to_owned);
        named.push((name.unwrap_or_else(|| free_name(&url, &named)), url));
    }
    if named.is_empty() {
        named.extend(chosen(app)?);
    }
    let mut directory = None;
    if named.is_empty() {
        named.push(("memory".to_owned(), "memory:".to_owned()));
        if cfg!(feature = "sqlite") {
            let place = tempfile::tempdir().map_err(CommandFailure::internal(
                "cannot make a directory for the SQLite file",
            ))?;
            let file = place.path().join("bench.db");
            let url = sqlite_url(&file, || {
                CommandFailure::new(
                    Exit::Config,
                    "the path of the directory for temporary files is not UTF-8",
                )
            })?;
            named.push(("sqlite".to_owned(), url));
            directory = Some(place);
        }
    }
    let openers = Openers::compiled_in();
    let targets = named.into_iter().map(|(name, url)| {
        let url = in_namespace(&app.global, |name: &str| env::var_os(name), url)?;
        openers.target(name, url).map_err(|e| failure(&e))
    });
    Ok((targets.collect::<Result<_, _>>()?, directory))
}

/// The service that options of every command name.
fn chosen(app: &App) -> Result<Option<(String, String)>, CommandFailure> {
    let global = &app.global;
    let ambient = env::var("LOCK_URL").ok();
    let is_ambient = global.url() == ambient.as_deref() && !global.is_backend_option;
    let names_backend = global.default_backend.is_some() || global.class.is_some();
    if is_ambient && !global.is_config_option && !names_backend {
        if ambient.is_some() {
            app.console.note(
                "measuring memory and SQLite; LOCK_URL is measured by `lockctl bench env:LOCK_URL`",
            );
        }
        return Ok(None);
    }
    let backend = match is_ambient {
        // LOCK_URL would replace the backend of the file.
        true => {
            let mut global = global.clone();
            global.backend = None;
            let without = |name: &str| env::var_os(name).filter(|_| name != "LOCK_URL");
            BackendUrl::choose(&global, without)?
        }
        false => app.backend()?,
    };
    let url = backend.text().to_owned();
    let name = global.default_backend.clone();
    Ok(Some((name.unwrap_or_else(|| free_name(&url, &[])), url)))
}

/// Splits `NAME=URL`. What has a colon before its first equals sign is a URL, of which no message
/// says anything: it may have a password.
fn name_and_place(text: &str) -> Result<(&str, &str), CommandFailure> {
    match text.split_once('=') {
        Some((name, place)) if !name.trim().is_empty() && !name.contains(':') => Ok((name, place)),
        _ => Err(
            CommandFailure::new(Exit::Usage, "a target of --target has no name")
                .with_hint("write --target NAME=URL, such as --target cache=redis://cache"),
        ),
    }
}

/// The URL itself, that in the variable of `env:VARIABLE`, or that of `backend:NAME` in the
/// configuration file.
fn url_at(app: &App, place: &str) -> Result<String, CommandFailure> {
    if let Some(name) = place.strip_prefix(BACKEND) {
        let mut global = app.global.clone();
        global.backend = None;
        // A class has a backend of its own, which would be measured under the name of this one.
        global.class = None;
        global.default_backend = Some(name.to_owned());
        let backend = BackendUrl::choose(&global, |name: &str| env::var_os(name))?;
        return Ok(backend.text().to_owned());
    }
    match place.strip_prefix("env:") {
        Some(variable) => env::var(variable).map_err(|_| {
            let message = format!("there is no URL in the variable {}", escaped(variable));
            CommandFailure::new(Exit::Config, message)
        }),
        None => Ok(place.to_owned()),
    }
}

const BACKEND: &str = "backend:";

/// A name for a URL: its scheme and mode, and a number if others have these too.
fn free_name(url: &str, taken: &[(String, String)]) -> String {
    let scheme = url.split(':').next().unwrap_or_default();
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let mode = query
        .split('&')
        .find_map(|param| param.strip_prefix("mode="));
    // From a URL, only words that cannot be a secret.
    let mode = mode.filter(|mode| mode.chars().all(|c| c.is_ascii_lowercase()));
    let base = match mode {
        Some(mode) => format!("{scheme} {mode}"),
        None => scheme.to_owned(),
    };
    let numbered = (2..).map(|number| format!("{base} {number}"));
    let mut names = std::iter::once(base.clone()).chain(numbered);
    let is_free = |name: &String| taken.iter().all(|(other, _)| other != name);
    names.find(is_free).unwrap_or(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_names() {
        let split = name_and_place("my cache=redis://h?a=b").unwrap();
        assert_eq!(split, ("my cache", "redis://h?a=b"));
        for wrong in ["redis://u:s3ntinel@h?a=b", "=redis://s3ntinel@h", "redis"] {
            let failure = name_and_place(wrong).unwrap_err();
            assert_eq!(failure.exit(), Exit::Usage);
            assert!(!format!("{failure:?}").contains("s3ntinel"));
        }
    }

    #[test]
    fn urls_get_names_that_tell_them_apart() {
        let mut named = Vec::new();
        for url in [
            "redis://app:s3ntinel@a",
            "redis://b",
            "postgres://x/y?mode=row",
            "postgres://x/y?mode=s3ntinel",
        ] {
            named.push((free_name(url, &named), url.to_owned()));
        }
        let names: Vec<_> = named.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["redis", "redis 2", "postgres row", "postgres"]);
    }
}
