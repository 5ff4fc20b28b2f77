//! Where a value comes from.

use std::fmt;
use std::ops::Range;

/// Bytes of the file.
pub(super) type Span = Range<usize>;

/// Where the value of a setting comes from.
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

/// An [`Origin`] before lines are counted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum At {
    Default,
    Environment(String),
    /// The file as a whole.
    File,
    Flag,
    Span(Span),
}

impl At {
    /// The place in the file; what is not in the file sorts last.
    pub(super) fn start(&self) -> usize {
        match self {
            Self::Span(span) => span.start,
            _ => usize::MAX,
        }
    }
}

/// A value and where it is.
#[derive(Clone, Debug)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) at: At,
}

impl<T> Found<T> {
    pub(super) fn new(value: T, at: At) -> Self {
        Self { value, at }
    }

    pub(super) fn in_file(value: T, span: Span) -> Self {
        Self::new(value, At::Span(span))
    }
}
