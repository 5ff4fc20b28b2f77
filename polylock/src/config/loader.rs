//! From file, environment and flags to a [`Config`].

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::Path;

use lock_core::Registry;

use super::Config;
use super::effective;
use super::environment::Environment;
use super::inputs::{Inputs, Scope};
use super::mistake::Mistakes;
use super::place::At;
use super::read::read;
use super::report::Report;
use super::resolve::resolve;

/// Loads configurations, with what stands above the file.
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
/// # Ok::<(), polylock::config::Mistakes>(())
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
    /// An empty variable is as good as none.
    pub fn with_environment(
        mut self,
        lookup: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static,
    ) -> Self {
        self.inputs.env = Environment::new(lookup);
        self
    }

    /// Names the default backend, whatever `LOCK_PROFILE` and the file say. `LOCK_URL` is then not
    /// read.
    pub fn with_profile(mut self, backend: impl Into<String>) -> Self {
        self.inputs.profile = Some(backend.into());
        self
    }

    /// Gives the default backend another URL, whatever `LOCK_URL` and the file say. The options of
    /// the file stay.
    pub fn with_url(mut self, url: impl Into<String>) -> Self {
        self.inputs.url = Some(url.into());
        self
    }

    /// Puts a namespace in front of all keys, in place of those of the URLs.
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.inputs.namespace = Some(namespace.into());
        self
    }

    /// Gives the URL of a configuration that has no backend at all.
    pub fn with_fallback_url(mut self, url: impl Into<String>) -> Self {
        self.inputs.fallback = Some(url.into());
        self
    }

    /// Looks for the backends in `registry`. Default: those that are compiled in, without an
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
    /// All that is wrong, at once; a text that is no TOML is told of alone, and so is a file that
    /// cannot be read.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Config, Mistakes> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let unreadable = |message: String| {
            let mut report = Report::new(&file, "");
            report.mistake(&At::File, message);
            Mistakes::new(&file, report.finish().0)
        };
        let text = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let text = String::from_utf8(text).map_err(|_| unreadable("this is not UTF-8".into()))?;
        self.make(&file, Some(path), &text)
    }

    /// Takes a text in place of a file.
    ///
    /// # Errors
    ///
    /// All that is wrong, at once; a text that is no TOML is told of alone.
    pub fn parse(&self, text: &str) -> Result<Config, Mistakes> {
        self.make("configuration", None, text)
    }

    /// Takes the environment and the flags alone.
    ///
    /// # Errors
    ///
    /// All that is wrong with them, at once.
    pub fn without_file(&self) -> Result<Config, Mistakes> {
        self.make("configuration", None, "")
    }

    fn make(&self, file: &str, path: Option<&Path>, text: &str) -> Result<Config, Mistakes> {
        let mut report = Report::new(file, text);
        let document = read(text, &mut report);
        // What could be said of the rest of a text that is no TOML would be guessed at.
        let Some(document) = document else {
            return Err(Mistakes::new(file, report.finish().0));
        };
        let resolved = resolve(document, path, &self.inputs, &mut report);
        let settings = effective::settings(&resolved, |at| report.origin(at));
        let (mistakes, warnings) = report.finish();
        if !mistakes.is_empty() {
            return Err(Mistakes::new(file, mistakes));
        }
        Ok(Config {
            file: path.map(Path::to_owned),
            registry: self.inputs.registry.clone(),
            resolved,
            settings,
            warnings,
        })
    }
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
