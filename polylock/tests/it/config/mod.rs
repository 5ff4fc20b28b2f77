//! Configuration files: their content, settings that override them, and their errors.

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
    let messages = errors.all().iter().map(|error| match error.position {
        Some((line, column)) => format!("{line}:{column}: {}", error.message),
        None => format!("{}: {}", error.origin, error.message),
    });
    messages.collect()
}
