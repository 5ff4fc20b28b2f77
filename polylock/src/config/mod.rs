//! A file, the environment and flags say which backends there are and how locks are requested.
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
//! [lock.payment]              # a class of locks
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
//!     [lock.payment]
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
//! A flag goes before the environment, that before the file, and that before the default.
//!
//! | key of the file | variable | flag |
//! |---|---|---|
//! | `default` | `LOCK_PROFILE` | [`Loader::with_profile`] |
//! | `namespace` | `LOCK_KEY_NAMESPACE` | [`Loader::with_namespace`] |
//! | `url` of `[backend.NAME]` | `LOCK_BACKEND_NAME_URL` | |
//! | `ttl`, `wait`, `max-hold`, `min-hold` of `[backend.NAME]` | `LOCK_BACKEND_NAME_TTL` and so on | |
//! | `url` of the default backend | the same, then `LOCK_URL` | [`Loader::with_url`] |
//! | `ttl` and so on of the default backend | the same, then `LOCK_TTL`, `LOCK_WAIT`, `LOCK_MAX_HOLD`, `LOCK_MIN_HOLD` | |
//! | `backend`, `ttl` and so on of `[lock.NAME]` | `LOCK_CLASS_NAME_BACKEND`, `LOCK_CLASS_NAME_TTL` and so on | |
//!
//! NAME is in capitals and has `_` for `-`. `docs/configuration.md` describes every key.
//!
//! # Mistakes
//!
//! All of them are told at once, with file, line and column; nothing that is misspelt is ignored.
//! No password is in a message, nor in a line that is quoted.

mod class;
mod connect;
mod document;
mod effective;
mod environment;
mod fit;
mod inputs;
mod keys;
mod lines;
mod loader;
mod locks;
mod mistake;
mod open;
mod place;
mod read;
mod report;
mod requirement;
mod resolve;
#[cfg(feature = "config-schema")]
mod schema;
mod secret;
mod settings;
mod terms;
mod urls;
mod value;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lock_core::layers::Observer;
use lock_core::{Registry, Result};

use self::resolve::Resolved;

pub use self::class::ConfiguredLocks;
pub use self::effective::Setting;
pub use self::inputs::Scope;
pub use self::loader::Loader;
pub use self::locks::Locks;
pub use self::mistake::{Mistake, Mistakes};
pub use self::place::Origin;
pub use self::requirement::Requirement;
#[cfg(feature = "config-schema")]
pub use self::schema::schema;
pub use self::secret::SecretUrl;
pub use self::settings::{BackendSettings, ClassSettings};
pub use self::terms::Terms;

/// A configuration without mistakes.
#[derive(Clone, Debug)]
pub struct Config {
    file: Option<PathBuf>,
    registry: Registry,
    resolved: Resolved,
    settings: Vec<Setting>,
    warnings: Vec<Mistake>,
}

impl Config {
    /// Loads a file, with the environment of the process above it.
    ///
    /// # Errors
    ///
    /// All that is wrong, at once; a text that is no TOML is told of alone, and so is a file that
    /// cannot be read. By `?` it becomes an [`InvalidConfig`](lock_core::ErrorKind::InvalidConfig).
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Mistakes> {
        Loader::new().load(path)
    }

    /// Takes a text in place of a file, with the environment of the process above it.
    ///
    /// # Errors
    ///
    /// As for [`load`](Self::load).
    pub fn parse(text: &str) -> Result<Self, Mistakes> {
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
    /// - [`Unsupported`](lock_core::ErrorKind::Unsupported) if a class demands what its backend does
    ///   not have; the message says which backend of the file has it.
    ///
    /// All that went wrong is in the message, and the kind is that of the first.
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

    /// The name of the backend of those who name none.
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

    /// What is no mistake, and better otherwise: a password that everybody can read, a short ttl.
    #[must_use]
    pub fn warnings(&self) -> &[Mistake] {
        &self.warnings
    }
}
