//! From file, environment and flags to a [`Config`].

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::Path;

use lock_core::Registry;
use secrecy::SecretString;

use super::Config;
use super::effective;
use super::entry::read;
use super::environment::Environment;
use super::error::{ConfigErrors, Report};
use super::origin::At;
use super::resolve::resolve;

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
    inputs: Inputs,
}

impl Loader {
    /// Takes the environment of the process and the backends that are compiled in.
    pub fn new() -> Self {
        Self {
            inputs: Inputs {
                env: Environment::new(|name| std::env::var_os(name)),
                registry: crate::compiled_in(),
                profile: None,
                url: None,
                namespace: None,
                fallback: None,
                scope: Scope::default(),
            },
        }
    }

    /// Looks up variables by a function, and not in the environment of the process.
    ///
    /// An empty variable counts as unset.
    pub fn with_environment(
        mut self,
        lookup: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static,
    ) -> Self {
        self.inputs.env = Environment::new(lookup);
        self
    }

    /// Names the default backend, over `LOCK_PROFILE` and the file. `LOCK_URL` is then not
    /// read.
    pub fn with_profile(mut self, backend: impl Into<String>) -> Self {
        self.inputs.profile = Some(backend.into());
        self
    }

    /// Sets the URL of the default backend, over `LOCK_URL` and the file. The options of
    /// the file stay.
    pub fn with_url(mut self, url: impl Into<String>) -> Self {
        self.inputs.url = Some(SecretString::from(url.into()));
        self
    }

    /// Puts a namespace before all keys, in place of those of the URLs.
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.inputs.namespace = Some(namespace.into());
        self
    }

    /// Sets the URL of a configuration without any backend.
    pub fn with_fallback_url(mut self, url: impl Into<String>) -> Self {
        self.inputs.fallback = Some(SecretString::from(url.into()));
        self
    }

    /// Resolves schemes with `registry`. Default: those that are compiled in, without an
    /// observer.
    pub fn with_registry(mut self, registry: Registry) -> Self {
        self.inputs.registry = registry;
        self
    }

    /// Says which backends will be opened. Default: [`Scope::Program`].
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.inputs.scope = scope;
        self
    }

    /// Loads a file.
    ///
    /// # Errors
    ///
    /// All errors at once; alone, that the text is not TOML or the file cannot be read.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Config, ConfigErrors> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let unreadable = |message: String| {
            let mut report = Report::new(&file, "");
            report.error(&At::File, message);
            report.finish().expect_err("BUG: there is an error")
        };
        let text = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let text = String::from_utf8(text).map_err(|_| unreadable("this is not UTF-8".into()))?;
        self.make(&file, Some(path), &text)
    }

    /// Takes a text in place of a file.
    ///
    /// # Errors
    ///
    /// All errors at once; alone, that the text is not TOML.
    pub fn parse(&self, text: &str) -> Result<Config, ConfigErrors> {
        self.make("configuration", None, text)
    }

    /// Takes the environment and the flags alone.
    ///
    /// # Errors
    ///
    /// All errors at once.
    pub fn without_file(&self) -> Result<Config, ConfigErrors> {
        self.make("configuration", None, "")
    }

    fn make(&self, file: &str, path: Option<&Path>, text: &str) -> Result<Config, ConfigErrors> {
        let mut report = Report::new(file, text);
        // Of a text that is not TOML, the rest could only be guessed.
        let Some(document) = read(text, &mut report) else {
            return Err(report.finish().expect_err("BUG: there is an error"));
        };
        let resolved = resolve(document, path, &self.inputs, &mut report);
        let settings = effective::settings(&resolved, |at| report.origin(at));
        let warnings = report.finish()?;
        Ok(Config {
            file: path.map(Path::to_owned),
            registry: self.inputs.registry.clone(),
            resolved,
            settings,
            warnings,
        })
    }
}

/// What overrides the file, and what it falls back to.
#[derive(Clone)]
pub(super) struct Inputs {
    pub(super) env: Environment,
    pub(super) registry: Registry,
    pub(super) profile: Option<String>,
    pub(super) url: Option<SecretString>,
    pub(super) namespace: Option<String>,
    /// The URL where nothing else names a backend.
    pub(super) fallback: Option<SecretString>,
    pub(super) scope: Scope,
}

/// Which backends of a file are opened.
///
/// A backend that is not opened may miss its variable or its URL file: a configuration for
/// development, tests and production has backends that only one of them reaches.
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

/// Shows nothing of the URLs that were given.
impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inputs { profile, scope, .. } = &self.inputs;
        f.debug_struct("Loader")
            .field("profile", profile)
            .field("scope", scope)
            .finish_non_exhaustive()
    }
}

impl Default for Loader {
    fn default() -> Self {
        Self::new()
    }
}
