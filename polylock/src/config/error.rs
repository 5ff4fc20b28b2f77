//! Config errors and their places.

use std::cell::RefCell;
use std::error::Error as StdError;
use std::fmt;
use std::ops::Range;

use polylock_core::Error;

/// Where the value of a setting comes from.
///
/// The example of [`Loader`](super::Loader) shows two of them.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Origin {
    /// Nothing sets it.
    Default,
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
    /// The file.
    File {
        /// Counted from 1.
        line: usize,
    },
    /// The program, which has it from its command line.
    Flag,
}

/// Prints `default`, `env NAME`, `line N` or `flag`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Environment { variable } => write!(f, "env {variable}"),
            Self::File { line } => write!(f, "line {line}"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// One error of a configuration, and its place. No password is in it.
///
/// [`ConfigErrors`] has an example.
#[non_exhaustive]
#[derive(Clone)]
pub struct ConfigError {
    /// The file, or `configuration` without one.
    pub file: String,
    /// Where the value comes from; [`Origin::Default`] for the configuration as a whole.
    pub origin: Origin,
    /// The line and the column in characters in the file, both counted from 1.
    pub position: Option<(usize, usize)>,
    /// What is wrong, and how to fix it.
    pub message: String,
}

/// Prints `FILE:LINE:COLUMN: MESSAGE`, or the origin in place of the file.
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
///
/// # Examples
///
/// ```
/// use polylock::config::Config;
///
/// let errors = Config::parse(r#"
///     namepsace = "shop"
///     [backend.main]
///     url = "memory:"
///     ttl = "400ms"
/// "#).expect_err("one key is misspelt, and the ttl is too short");
///
/// assert_eq!(errors.summary(), "there are 2 errors in configuration");
/// assert_eq!(errors.all()[1].position, Some((5, 11))); // line and column
/// assert!(errors.to_string().contains("did you mean \"namespace\"?"));
/// ```
#[derive(Clone)]
pub struct ConfigErrors {
    file: String,
    all: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
}

impl ConfigErrors {
    /// The errors, at least one.
    #[must_use]
    pub fn all(&self) -> &[ConfigError] {
        &self.all
    }

    /// What is valid but risky, as [`Config::warnings`](super::Config::warnings) says of a valid configuration.
    #[must_use]
    pub fn warnings(&self) -> &[ConfigError] {
        &self.warnings
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

/// One line for each error.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.all.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// The summary and the errors, so that `main` can return it.
impl fmt::Debug for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{self}", self.summary())
    }
}

impl StdError for ConfigErrors {}

/// An [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) with the summary as its message.
impl From<ConfigErrors> for Error {
    fn from(errors: ConfigErrors) -> Self {
        Self::config(errors.summary()).with_source(errors)
    }
}

/// Where a value is: bytes of the file or, from [`ELSEWHERE`] on, a place outside of it.
pub(super) type ByteSpan = Range<usize>;

/// No file has so many bytes.
const ELSEWHERE: usize = usize::MAX / 2;

/// Collects errors and warnings, so that all of them are reported at once.
pub(super) struct ConfigReport<'t> {
    file: &'t str,
    text: &'t str,
    /// The places outside of the file, in the order of their spans.
    elsewhere: RefCell<Vec<Origin>>,
    errors: RefCell<Vec<(ByteSpan, String)>>,
    warnings: RefCell<Vec<(ByteSpan, String)>>,
}

impl<'t> ConfigReport<'t> {
    pub(super) fn new(file: &'t str, text: &'t str) -> Self {
        Self {
            file,
            text,
            elsewhere: RefCell::default(),
            errors: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    pub(super) fn error(&self, span: ByteSpan, message: impl Into<String>) {
        note(&self.errors, span, message.into());
    }

    pub(super) fn warning(&self, span: ByteSpan, message: impl Into<String>) {
        note(&self.warnings, span, message.into());
    }

    /// A place outside of the file; [`Origin::Default`] stands for the configuration as a whole.
    pub(super) fn span(&self, origin: Origin) -> ByteSpan {
        let mut elsewhere = self.elsewhere.borrow_mut();
        let known = elsewhere.iter().position(|known| *known == origin);
        let at = known.unwrap_or_else(|| {
            elsewhere.push(origin);
            elsewhere.len() - 1
        });
        ELSEWHERE + at..ELSEWHERE + at
    }

    pub(super) fn origin(&self, span: &ByteSpan) -> Origin {
        match span.start.checked_sub(ELSEWHERE) {
            Some(at) => self.elsewhere.borrow()[at].clone(),
            None => Origin::File {
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
    pub(super) fn finish(&self) -> Result<Vec<ConfigError>, ConfigErrors> {
        let placed = |notes: &RefCell<Vec<(ByteSpan, String)>>| {
            let mut notes = notes.take();
            notes.sort_by_key(|(span, _)| span.start);
            let notes = notes.into_iter().map(|(span, message)| ConfigError {
                file: self.file.to_owned(),
                origin: self.origin(&span),
                position: (span.start < ELSEWHERE).then(|| self.position(span.start)),
                message,
            });
            notes.collect::<Vec<_>>()
        };
        let (all, warnings) = (placed(&self.errors), placed(&self.warnings));
        match all.is_empty() {
            true => Ok(warnings),
            false => Err(ConfigErrors {
                file: self.file.to_owned(),
                all,
                warnings,
            }),
        }
    }
}

/// A value that is used in several places is wrong once.
fn note(notes: &RefCell<Vec<(ByteSpan, String)>>, span: ByteSpan, message: String) {
    let (mut notes, note) = (notes.borrow_mut(), (span, message));
    if !notes.contains(&note) {
        notes.push(note);
    }
}
