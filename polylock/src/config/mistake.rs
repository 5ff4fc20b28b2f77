//! What is wrong with a configuration, told to people.

use std::error::Error as StdError;
use std::fmt;

use lock_core::{Error, ErrorKind};

use super::lines::Quote;
use super::place::Origin;

/// One thing that is wrong, and where.
///
/// `Display` prints the place, what is wrong, and the line of the file with a mark below. No
/// password is in any of them.
#[derive(Clone)]
pub struct Mistake {
    pub(super) file: String,
    pub(super) origin: Origin,
    pub(super) message: String,
    /// The line, where the mistake is in one.
    pub(super) quote: Option<Quote>,
}

impl Mistake {
    /// What is wrong, and the way out.
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
        self.quote.as_ref().map(|quote| quote.line)
    }

    /// The column in characters, counted from 1.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.quote.as_ref().map(|quote| quote.column)
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, message, .. } = self;
        match (&self.quote, &self.origin) {
            (Some(quote), _) => {
                let Quote { line, column, .. } = quote;
                write!(f, "{file}:{line}:{column}: {message}\n{quote}")
            }
            (None, Origin::Default | Origin::File { .. }) => write!(f, "{file}: {message}"),
            (None, origin) => write!(f, "{origin}: {message}"),
        }
    }
}

/// The same as `Display`, so that `main` can return it.
impl fmt::Debug for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Everything that is wrong with a configuration, in the order of the file.
#[derive(Clone)]
pub struct Mistakes {
    file: String,
    all: Vec<Mistake>,
}

impl Mistakes {
    pub(super) fn new(file: &str, all: Vec<Mistake>) -> Self {
        let file = file.to_owned();
        Self { file, all }
    }

    /// The mistakes, at least one.
    pub fn iter(&self) -> std::slice::Iter<'_, Mistake> {
        self.all.iter()
    }

    /// One line that says how many there are.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.all.len() {
            1 => format!("there is a mistake in {}", self.file),
            mistakes => format!("there are {mistakes} mistakes in {}", self.file),
        }
    }
}

impl<'a> IntoIterator for &'a Mistakes {
    type Item = &'a Mistake;
    type IntoIter = std::slice::Iter<'a, Mistake>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One block for each mistake.
impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, mistake) in self.all.iter().enumerate() {
            write!(f, "{}{mistake}", if at == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// The same as `Display`, so that `main` can return it.
impl fmt::Debug for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{self}", self.summary())
    }
}

impl StdError for Mistakes {}

/// An [`InvalidConfig`](ErrorKind::InvalidConfig) with the summary as its message.
impl From<Mistakes> for Error {
    fn from(mistakes: Mistakes) -> Self {
        Self::new(ErrorKind::InvalidConfig, mistakes.summary()).with_source(mistakes)
    }
}
