//! What is written in the file, before it is known what it amounts to. What has passwords in it has no
//! `Debug`, or one that hides them.

use std::fmt;

use lock_core::LockUrl;

use super::lines::HIDDEN;
use super::place::Found;
use super::requirement::Requirement;
use super::terms::Terms;

/// The file.
#[derive(Default)]
pub(super) struct Document {
    pub(super) default: Option<Found<String>>,
    pub(super) namespace: Option<Found<String>>,
    /// Whether there are backends that are no tables, which is told already.
    pub(super) are_backends_wrong: bool,
    /// In the order of the file.
    pub(super) backends: Vec<BackendTable>,
    pub(super) classes: Vec<ClassTable>,
}

/// A table `[backend.NAME]`.
pub(super) struct BackendTable {
    pub(super) name: Found<String>,
    pub(super) url: Option<(UrlKey, Found<String>)>,
    /// Whether there is a URL that is no text, which is told already.
    pub(super) is_url_wrong: bool,
    pub(super) options: Vec<Parameter>,
    pub(super) migrate_from: Option<Found<String>>,
    pub(super) terms: Terms,
}

/// How a backend says what its URL is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum UrlKey {
    Env,
    File,
    Url,
}

/// A key of `[backend.NAME.options]`.
#[derive(Clone)]
pub(super) struct Parameter {
    pub(super) name: Found<String>,
    pub(super) value: String,
}

impl Parameter {
    /// The value for people.
    pub(super) fn shown(&self) -> &str {
        match LockUrl::shows(&self.name.value) {
            true => &self.value,
            false => HIDDEN,
        }
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?}", self.name.value, self.shown())
    }
}

/// A table `[lock.NAME]`.
pub(super) struct ClassTable {
    pub(super) name: Found<String>,
    pub(super) backend: Option<Found<String>>,
    pub(super) require: Vec<Found<Requirement>>,
    pub(super) terms: Terms,
}
