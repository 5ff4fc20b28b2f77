//! Builds a [`Config`] from file, environment and flags.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polylock_core::layers::Observer;
use polylock_core::{LockUrl, Registry, Result};

use super::context::Context;
use super::error::{ConfigError, ConfigErrors, ConfigReport, Origin};
use super::loader::Loader;
use super::locks::{Locks, connect};
use super::resolve::resolve;
use super::settings::{BackendSettings, ClassSettings, Setting};
use super::table::read;
use super::value::shown;

/// A valid configuration.
///
/// # Examples
///
/// The example of [the module](super) connects. A program that checks a configuration:
///
/// ```
/// use polylock::config::Config;
///
/// let config = Config::parse(r#"
///     [backend.main]
///     url = "memory:"
///     ttl = "2s"
/// "#)?;
/// assert_eq!(config.default_backend(), Some("main"));
/// for warning in config.warnings() {
///     println!("{warning}"); // configuration:4:11: a lease below 5s is lost in a short pause ...
/// }
/// assert_eq!(config.warnings().len(), 1);
/// # Ok::<(), polylock::config::ConfigErrors>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) file: Option<PathBuf>,
    pub(super) registry: Registry,
    pub(super) default: Option<String>,
    pub(super) backends: Vec<BackendSettings>,
    pub(super) classes: Vec<ClassSettings>,
    pub(super) settings: Vec<Setting>,
    pub(super) warnings: Vec<ConfigError>,
}

impl Config {
    /// Loads a file, overridden by the environment of the process.
    ///
    /// # Errors
    ///
    /// All errors at once. A file that cannot be read or is not TOML is reported alone. With `?` they
    /// become an [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig).
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        Loader::new().load(path)
    }

    /// Reads a text in place of a file, overridden by the environment of the process.
    ///
    /// # Errors
    ///
    /// As for [`load`](Self::load).
    pub fn parse(text: &str) -> Result<Self, ConfigErrors> {
        Loader::new().parse(text)
    }

    /// Reports the lock events of all later connections to `observer`.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.registry = self.registry.with_observer(observer);
        self
    }

    /// Connects to the backends that are used, each once.
    ///
    /// # Errors
    ///
    /// - Those of [`Registry::connect`].
    /// - [`Unsupported`](polylock_core::ErrorKind::Unsupported) if a class requires what its backend does
    ///   not have; the message names the backends of the file that have it.
    ///
    /// The message lists all failures, and the kind is that of the first.
    ///
    /// # Cancel safety
    ///
    /// No lock is touched. A dropped future closes what it opened.
    pub async fn connect(&self) -> Result<Locks> {
        Box::pin(connect(self)).await
    }

    /// The file, if the configuration is from one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The backend that is used where none is named.
    #[must_use]
    pub fn default_backend(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// The backends in the order of the file.
    #[must_use]
    pub fn backends(&self) -> &[BackendSettings] {
        &self.backends
    }

    /// The classes in the order of the file.
    #[must_use]
    pub fn classes(&self) -> &[ClassSettings] {
        &self.classes
    }

    /// Every value with its origin, defaults included; secrets are shown as `***`.
    #[must_use]
    pub fn effective(&self) -> &[Setting] {
        &self.settings
    }

    /// What is valid but risky: a password that everyone can read, a short ttl.
    #[must_use]
    pub fn warnings(&self) -> &[ConfigError] {
        &self.warnings
    }
}

impl Loader {
    /// Loads a file.
    ///
    /// # Errors
    ///
    /// All errors at once. A file that cannot be read or is not TOML is reported alone.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Config, ConfigErrors> {
        let path = path.as_ref();
        let file = path.display().to_string();
        // A URL in the place of a file may have a password.
        let file = match LockUrl::may_be_url(&file) {
            true => shown(&file),
            false => &file,
        };
        let text = fs::read(path).map_err(|error| error.to_string());
        let text = text
            .and_then(|text| String::from_utf8(text).map_err(|_| "this is not UTF-8".to_owned()));
        let report = ConfigReport::new(file, text.as_deref().unwrap_or_default());
        if let Err(message) = &text {
            report.error(report.span(Origin::Default), message);
        }
        self.make(&report, Some(path), text.as_deref().ok())
    }

    /// Takes a text in place of a file.
    ///
    /// # Errors
    ///
    /// All errors at once. A text that is not TOML is reported alone.
    pub fn parse(&self, text: &str) -> Result<Config, ConfigErrors> {
        self.make(&ConfigReport::new("configuration", text), None, Some(text))
    }

    /// Takes the environment and the flags alone.
    ///
    /// # Errors
    ///
    /// All errors at once.
    pub fn without_file(&self) -> Result<Config, ConfigErrors> {
        self.parse("")
    }

    fn make<'t>(
        &self,
        report: &'t ConfigReport<'t>,
        path: Option<&Path>,
        text: Option<&'t str>,
    ) -> Result<Config, ConfigErrors> {
        // If the text is not TOML, further errors would be guesses.
        let Some(document) = text.and_then(|text| read(text, report)) else {
            return Err(report.finish().expect_err("BUG: there is an error"));
        };
        let cx = Context {
            loader: self,
            path,
            report,
        };
        resolve(&cx, document)
    }
}
