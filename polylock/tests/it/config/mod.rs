//! Configuration files: what is in them, what stands above them, and what is wrong with them.

mod document;
mod errors;
mod locks;
mod places;
mod precedence;
mod secrets;

use std::ffi::OsString;

use polylock::config::{Config, ConfigErrors, Loader};

/// A loader that sees these variables and no others.
fn loader(variables: &[(&str, &str)]) -> Loader {
    let variables: Vec<(String, OsString)> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.into()))
        .collect();
    Loader::new().with_environment(move |name| {
        let found = variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    })
}

/// Reads a text without any variable.
fn parse(text: &str) -> Result<Config, ConfigErrors> {
    loader(&[]).parse(text)
}

/// The errors of a text, each as `LINE:COLUMN: MESSAGE`.
fn wrong(text: &str) -> Vec<String> {
    messages(&parse(text).expect_err("something is wrong"))
}

fn messages(errors: &ConfigErrors) -> Vec<String> {
    let messages = errors.iter().map(|error| {
        let message = error.message();
        match (error.line(), error.column()) {
            (Some(line), Some(column)) => format!("{line}:{column}: {message}"),
            _ => format!("{}: {message}", error.origin()),
        }
    });
    messages.collect()
}

/// A value as `VALUE (ORIGIN)`.
fn setting(config: &Config, key: &str) -> String {
    let settings = config.effective();
    let found = settings.iter().find(|setting| setting.key == key);
    let found = found.unwrap_or_else(|| panic!("no {key} in {settings:?}"));
    format!("{} ({})", found.value, found.origin)
}
