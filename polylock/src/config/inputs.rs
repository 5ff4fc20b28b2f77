//! What a configuration is made from, apart from the file.

use lock_core::Registry;

use super::environment::Environment;

/// What stands above the file and below it.
#[derive(Clone)]
pub(super) struct Inputs {
    pub(super) env: Environment,
    pub(super) registry: Registry,
    pub(super) profile: Option<String>,
    pub(super) url: Option<String>,
    pub(super) namespace: Option<String>,
    /// The URL of a backend that nobody gives one.
    pub(super) fallback: Option<String>,
    pub(super) scope: Scope,
}

/// Which backends of a file are opened.
///
/// Of a backend that is not, it is no mistake that its variable is not set or its file not there:
/// a file for development, tests and production has backends that only one of them reaches.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Scope {
    /// All of them.
    All,
    /// That of one class.
    Class(String),
    /// The default one.
    Default,
    /// The default one and those of the classes.
    #[default]
    Program,
}
