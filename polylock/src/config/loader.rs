//! From file, environment and flags to a [`Config`].

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polylock_core::layers::Observer;
use polylock_core::{Registry, Result};
use secrecy::SecretString;

use super::error::{ConfigError, ConfigErrors, ConfigReport, Origin};
use super::locks::{Locks, connect};
use super::resolve::{Context, Resolved, resolve};
use super::settings::{BackendSettings, ClassSettings, Setting};
use super::table::read;

/// Loads configurations, with what overrides the file.
///
/// # Examples
///
/// ```
/// use polylock::config::Loader;
///
/// let config = Loader::new()
///     .with_environment(|name| (name == "LOCK_TTL").then(|| "10s".into()))
///     .with_namespace("shop")
///     .parse("[backend.main]\nurl = 'memory:'\nttl = '1m'\n")?;
/// let settings: Vec<_> = config.effective().iter().map(ToString::to_string).collect();
/// assert!(settings.contains(&"backend.main.ttl = 10s (env LOCK_TTL)".to_owned()));
/// assert!(settings.contains(&"namespace = shop (flag)".to_owned()));
/// # Ok::<(), polylock::config::ConfigErrors>(())
/// ```
#[must_use = "nothing is loaded before `load`, `parse` or `without_file`"]
#[derive(Clone)]
pub struct Loader {
    pub(super) env: Arc<Lookup>,
    pub(super) registry: Registry,
    pub(super) default_backend: Option<String>,
    pub(super) url: Option<SecretString>,
    pub(super) namespace: Option<String>,
    /// The URL of a configuration without any backend.
    pub(super) fallback: Option<SecretString>,
    pub(super) scope: Scope,
}

type Lookup = dyn Fn(&str) -> Option<OsString> + Send + Sync;

/// Which backends of a file are opened.
///
/// The variable or the URL file of an unopened backend may be missing: a configuration for development,
/// tests and production may have backends that only one of them reaches.
///
/// # Examples
///
/// ```
/// use polylock::config::{Loader, Scope};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock::Result<()> {
/// let config = Loader::new().with_scope(Scope::Class("payment".to_owned())).parse(r#"
///     default = "main"
///     [backend.main]
///     url-env = "A_VARIABLE_OF_PRODUCTION"
///     [backend.ledger]
///     url = "memory:"
///     [class.payment]
///     backend = "ledger"
/// "#)?;
/// let locks = config.connect().await?;
/// assert_eq!(locks.backends().collect::<Vec<_>>(), ["ledger"]);
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Scope {
    /// All of them.
    All,
    /// That of one class.
    Class(String),
    /// The default one.
    Default,
    /// The default one and those of the classes. The default.
    #[default]
    Program,
}

impl Loader {
    /// Takes the environment of the process and the backends that are compiled in.
    pub fn new() -> Self {
        Self {
            env: Arc::new(|name| std::env::var_os(name)),
            registry: crate::compiled_in(),
            default_backend: None,
            url: None,
            namespace: None,
            fallback: None,
            scope: Scope::default(),
        }
    }

    /// Looks up variables by a function, and not in the environment of the process.
    ///
    /// An empty variable counts as unset.
    pub fn with_environment(
        mut self,
        lookup: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static,
    ) -> Self {
        self.env = Arc::new(lookup);
        self
    }

    /// Names the default backend, over `LOCK_DEFAULT_BACKEND` and the file. `LOCK_URL` is then not
    /// read.
    pub fn with_default_backend(mut self, backend: impl Into<String>) -> Self {
        self.default_backend = Some(backend.into());
        self
    }

    /// Sets the URL of the default backend, over `LOCK_URL` and the file. The options of
    /// the file stay.
    pub fn with_url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(SecretString::from(url.into()));
        self
    }

    /// Puts a namespace before all keys, in place of those of the URLs.
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the URL of a configuration without any backend.
    pub fn with_fallback_url(mut self, url: impl Into<String>) -> Self {
        self.fallback = Some(SecretString::from(url.into()));
        self
    }

    /// Resolves schemes with `registry`. Default: those that are compiled in, without an
    /// observer.
    pub fn with_registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Says which backends will be opened. Default: [`Scope::Program`].
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Loads a file.
    ///
    /// # Errors
    ///
    /// All errors at once. A file that cannot be read or is not TOML is reported alone.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Config, ConfigErrors> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let text = fs::read(path).map_err(|error| error.to_string());
        let text = text
            .and_then(|text| String::from_utf8(text).map_err(|_| "this is not UTF-8".to_owned()));
        let report = ConfigReport::new(&file, text.as_deref().unwrap_or_default());
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
        let loader = self;
        let resolved = resolve(
            &Context {
                loader,
                path,
                report,
            },
            document,
        );
        Ok(Config {
            file: path.map(Path::to_owned),
            registry: self.registry.clone(),
            warnings: report.finish()?,
            resolved,
        })
    }
}

/// Shows nothing of the URLs that were given.
impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("default_backend", &self.default_backend)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl Default for Loader {
    fn default() -> Self {
        Self::new()
    }
}

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
    file: Option<PathBuf>,
    registry: Registry,
    resolved: Resolved,
    warnings: Vec<ConfigError>,
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
        Box::pin(connect(&self.registry, &self.resolved)).await
    }

    /// The file, if the configuration is from one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The backend that is used where none is named.
    #[must_use]
    pub fn default_backend(&self) -> Option<&str> {
        self.resolved.default.as_deref()
    }

    /// The backends in the order of the file.
    #[must_use]
    pub fn backends(&self) -> &[BackendSettings] {
        &self.resolved.backends
    }

    /// The classes in the order of the file.
    #[must_use]
    pub fn classes(&self) -> &[ClassSettings] {
        &self.resolved.classes
    }

    /// Every value with its origin, defaults included; secrets are shown as `***`.
    #[must_use]
    pub fn effective(&self) -> &[Setting] {
        &self.resolved.settings
    }

    /// What is valid but risky: a password that everyone can read, a short ttl.
    #[must_use]
    pub fn warnings(&self) -> &[ConfigError] {
        &self.warnings
    }
}
