//! Overrides of a file: environment and flags.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use polylock_core::Registry;
use secrecy::SecretString;

use super::value::shown;

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
}

/// Shows nothing of the URLs that were given.
impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field(
                "default_backend",
                &self.default_backend.as_deref().map(shown),
            )
            .finish_non_exhaustive()
    }
}

impl Default for Loader {
    fn default() -> Self {
        Self::new()
    }
}
