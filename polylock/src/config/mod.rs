//! Backends and lock settings from a file, the environment and flags.
//!
//! ```toml
//! default = "main"
//! namespace = "shop"          # goes before every key
//!
//! [backend.main]
//! url = "redis://cache"       # or url-env = "VARIABLE", or url-file = "PATH"
//! ttl = "30s"
//! wait = "5s"
//!
//! [backend.main.options]      # parameters of the URL
//! max-waiters = 100
//!
//! [backend.ledger]
//! url-env = "LEDGER_URL"
//!
//! [class.payment]              # a class of locks
//! backend = "ledger"
//! ttl = "2m"
//! require = ["strong-fencing"]
//! ```
//!
//! The program asks for a class, or for the default backend, and knows no URL:
//!
//! ```
//! use polylock::config::Config;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock::Result<()> {
//! let config = Config::parse(r#"
//!     namespace = "shop"
//!     [backend.main]
//!     url = "memory:"
//!     [class.payment]
//!     ttl = "2m"
//!     wait = "never"
//!     require = ["fencing"]
//! "#)?;
//! let locks = config.connect().await?;
//! let payments = locks.class("payment")?;
//! let guard = payments.lock("order/42").await?; // for two minutes, renewed until it is released
//! assert!(payments.try_lock("order/42").await?.is_none());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Precedence
//!
//! Flags override the environment, which overrides the file, which overrides the defaults.
//!
//! | key of the file | variable | flag |
//! |---|---|---|
//! | `default` | `LOCK_PROFILE` | [`Loader::with_profile`] |
//! | `namespace` | `LOCK_KEY_NAMESPACE` | [`Loader::with_namespace`] |
//! | `url` of `[backend.NAME]` | `LOCK_BACKEND_NAME_URL` | |
//! | `ttl`, `wait`, `max-hold`, `min-hold` of `[backend.NAME]` | `LOCK_BACKEND_NAME_TTL` and so on | |
//! | `url` of the default backend | the same, then `LOCK_URL` | [`Loader::with_url`] |
//! | `ttl` and so on of the default backend | the same, then `LOCK_TTL`, `LOCK_WAIT`, `LOCK_MAX_HOLD`, `LOCK_MIN_HOLD` | |
//! | `backend`, `ttl` and so on of `[class.NAME]` | `LOCK_CLASS_NAME_BACKEND`, `LOCK_CLASS_NAME_TTL` and so on | |
//!
//! NAME is in capitals and has `_` for `-`. `docs/configuration.md` describes every key.
//!
//! # Errors
//!
//! All of them are reported at once, with file, line and column. A misspelt key is an error. No
//! message has a password in it.

mod class;
mod connect;
mod effective;
mod entry;
mod environment;
mod error;
mod file;
mod loader;
mod locks;
mod origin;
mod requirement;
mod resolve;
#[cfg(feature = "config-schema")]
mod schema;
mod secret;
mod settings;
mod suggest;
mod urls;
mod validate;
mod value;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lock_core::layers::Observer;
use lock_core::{Registry, Result};

use self::resolve::Resolved;

pub use self::class::ConfiguredLocks;
pub use self::effective::Setting;
pub use self::error::{ConfigError, ConfigErrors};
pub use self::loader::{Loader, Scope};
pub use self::locks::Locks;
pub use self::origin::Origin;
pub use self::requirement::Requirement;
#[cfg(feature = "config-schema")]
pub use self::schema::schema;
pub use self::secret::SecretUrl;
pub use self::settings::{BackendSettings, ClassSettings, LockSettings};

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    file: Option<PathBuf>,
    registry: Registry,
    resolved: Resolved,
    settings: Vec<Setting>,
    warnings: Vec<ConfigError>,
}

impl Config {
    /// Loads a file, overridden by the environment of the process.
    ///
    /// # Errors
    ///
    /// All errors at once; alone, that the text is not TOML or the file cannot be read. By `?` they
    /// become an [`InvalidConfig`](lock_core::ErrorKind::InvalidConfig).
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

    /// Tells `observer` what happens to the locks of connections that are made from then on.
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
    /// - [`Unsupported`](lock_core::ErrorKind::Unsupported) if a class requires what its backend does
    ///   not have; the message names the backends of the file that have it.
    ///
    /// Everything that failed is in the message, and the kind is that of the first.
    ///
    /// # Cancel safety
    ///
    /// No lock is touched. A dropped future closes what it opened.
    pub async fn connect(&self) -> Result<Locks> {
        Box::pin(connect::connect(self)).await
    }

    /// The file, if the configuration is from one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The backend that is used where none is named.
    #[must_use]
    pub fn default_backend(&self) -> Option<&str> {
        let default = self.resolved.default.as_ref();
        default.map(|found| found.value.as_str())
    }

    /// The backends in the order of the file.
    pub fn backends(&self) -> impl Iterator<Item = &BackendSettings> {
        self.resolved.backends.iter()
    }

    /// The classes in the order of the file.
    pub fn classes(&self) -> impl Iterator<Item = &ClassSettings> {
        self.resolved.classes.iter()
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
