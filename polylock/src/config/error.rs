//! The errors of a configuration.

use std::error::Error as StdError;
use std::fmt;

use lock_core::{Error, ErrorKind};

use super::origin::{At, Origin};

/// One error of a configuration, and its place.
///
/// `Display` prints the place and the error. No password is in it.
#[derive(Clone)]
pub struct ConfigError {
    file: String,
    origin: Origin,
    /// Line and column, both counted from 1.
    position: Option<(usize, usize)>,
    message: String,
}

impl ConfigError {
    /// What is wrong, and how to fix it.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Where the value comes from; [`Origin::Default`] for the configuration as a whole.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The line in the file, counted from 1.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.position.map(|(line, _)| line)
    }

    /// The column in characters, counted from 1.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.position.map(|(_, column)| column)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, message, .. } = self;
        match (self.position, &self.origin) {
            (Some((line, column)), _) => write!(f, "{file}:{line}:{column}: {message}"),
            (None, Origin::Default | Origin::File { .. }) => write!(f, "{file}: {message}"),
            (None, origin) => write!(f, "{origin}: {message}"),
        }
    }
}

/// The same as `Display`, so that `main` can return it.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// All errors of a configuration, in the order of the file.
#[derive(Clone)]
pub struct ConfigErrors {
    file: String,
    all: Vec<ConfigError>,
}

impl ConfigErrors {
    /// The errors, at least one.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.all.iter()
    }

    /// One line with the number of errors.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.all.len() {
            1 => format!("there is an error in {}", self.file),
            errors => format!("there are {errors} errors in {}", self.file),
        }
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One line for each error.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.all.iter().enumerate() {
            write!(f, "{}{error}", if at == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// The same as `Display`, so that `main` can return it.
impl fmt::Debug for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{self}", self.summary())
    }
}

impl StdError for ConfigErrors {}

/// An [`InvalidConfig`](ErrorKind::InvalidConfig) with the summary as its message.
impl From<ConfigErrors> for Error {
    fn from(errors: ConfigErrors) -> Self {
        Self::new(ErrorKind::InvalidConfig, errors.summary()).with_source(errors)
    }
}

/// Collects errors and warnings, so that all of them are reported at once.
#[derive(Debug)]
pub(super) struct Report<'t> {
    file: &'t str,
    text: &'t str,
    errors: Vec<(At, String)>,
    warnings: Vec<(At, String)>,
}

impl<'t> Report<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        let (errors, warnings) = (Vec::new(), Vec::new());
        Self {
            file,
            text,
            errors,
            warnings,
        }
    }

    pub(super) fn error(&mut self, at: &At, message: impl Into<String>) {
        note(&mut self.errors, at, message.into());
    }

    pub(super) fn warning(&mut self, at: &At, message: impl Into<String>) {
        note(&mut self.warnings, at, message.into());
    }

    pub(super) fn origin(&self, at: &At) -> Origin {
        match at {
            At::Default | At::File => Origin::Default,
            At::Environment(variable) => Origin::Environment {
                variable: variable.clone(),
            },
            At::Flag => Origin::Flag,
            At::Span(span) => Origin::File {
                line: self.position(span.start).0,
            },
        }
    }

    /// Line and column of a byte. An error at the end of the file may be behind it.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(at)];
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }

    /// Ends with the errors, if there are any, else with the warnings.
    pub(super) fn finish(mut self) -> Result<Vec<ConfigError>, ConfigErrors> {
        let is_ok = self.errors.is_empty();
        let mut all = match is_ok {
            true => std::mem::take(&mut self.warnings),
            false => std::mem::take(&mut self.errors),
        };
        all.sort_by_key(|(at, _)| at.start());
        let all = all.into_iter().map(|(at, message)| ConfigError {
            file: self.file.to_owned(),
            origin: self.origin(&at),
            position: match &at {
                At::Span(span) => Some(self.position(span.start)),
                _ => None,
            },
            message,
        });
        let all: Vec<_> = all.collect();
        match is_ok {
            true => Ok(all),
            false => Err(ConfigErrors {
                file: self.file.to_owned(),
                all,
            }),
        }
    }
}

/// A value that is used in several places is wrong once.
fn note(notes: &mut Vec<(At, String)>, at: &At, message: String) {
    if !notes
        .iter()
        .any(|note| (&note.0, &note.1) == (at, &message))
    {
        notes.push((at.clone(), message));
    }
}
