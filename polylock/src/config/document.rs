//! What is written in the file, before it is known what it amounts to.

use super::place::Found;
use super::requirement::Requirement;
use super::terms::Terms;

/// The file.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) default: Option<Found<String>>,
    pub(super) namespace: Option<Found<String>>,
    /// In the order of the file.
    pub(super) backends: Vec<BackendTable>,
    pub(super) classes: Vec<ClassTable>,
}

/// A table `[backend.NAME]`.
#[derive(Debug)]
pub(super) struct BackendTable {
    pub(super) name: Found<String>,
    pub(super) url: Option<(UrlKey, Found<String>)>,
    pub(super) options: Vec<Parameter>,
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
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub(super) name: Found<String>,
    pub(super) value: String,
}

/// A table `[lock.NAME]`.
#[derive(Debug)]
pub(super) struct ClassTable {
    pub(super) name: Found<String>,
    pub(super) backend: Option<Found<String>>,
    pub(super) require: Vec<Found<Requirement>>,
    pub(super) terms: Terms,
}
