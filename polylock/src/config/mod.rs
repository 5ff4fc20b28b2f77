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
//! Flags override the environment, which overrides the file, which overrides the defaults; each key
//! by itself. `docs/configuration.md` describes every key with its variable and its flag.
//!
//! # Errors
//!
//! All of them are reported at once, with file, line and column. A misspelt key is an error. No
//! message has a password in it.

mod configuration;
mod context;
mod error;
mod file;
mod loader;
mod locks;
mod requirement;
mod resolve;
#[cfg(feature = "config-schema")]
mod schemas;
mod secret_url;
mod settings;
mod table;
mod urls;
mod value;

pub use self::configuration::Config;
pub use self::error::{ConfigError, ConfigErrors, Origin};
#[cfg(feature = "config-schema")]
pub use self::file::schema;
pub use self::loader::{Loader, Scope};
pub use self::locks::{ConfiguredLocks, Locks};
pub use self::requirement::Requirement;
pub use self::secret_url::SecretUrl;
pub use self::settings::{BackendSettings, ClassSettings, LockSettings, Setting};
pub use self::urls::{has_namespace, with_namespace};
