//! Distributed locks with one API: a URL picks the backend, the guard stays the same.
//!
//! ```
//! use polylock::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock::Result<()> {
//! let locks = polylock::connect("memory:").await?;
//! let guard = locks.lock("orders/42").await?; // waits, and renews by itself
//! assert!(guard.is_held());
//! assert!(locks.try_lock("orders/42").await?.is_none());
//!
//! let token = guard.fencing_token(); // goes along with every write that the lock protects
//! guard.release().await?; // or drop the guard
//!
//! let next = locks.lock("orders/42").await?;
//! assert!(next.fencing_token() > token); // so that a write of the last holder can be refused
//! # Ok(()) }
//! ```
//!
//! # Backends
//!
//! | URL | feature | locks between |
//! |---|---|---|
//! | `memory:`, `memory:NAME` | always there | tasks of one process |
//! | `sqlite:PATH` | `sqlite` | processes on one host |
//! | `postgres:`, `postgresql:` | `postgres` (and `tls`) | processes that reach the server |
//! | `mysql:`, `mariadb:` | `mysql` (and `tls`) | processes that reach the server |
//! | `redis:`, `rediss:`, `redis+unix:`, `redis-sentinel:`, `redis-cluster:`, `redlock:` | `redis` (and `tls`) | processes that reach the servers |
//! | `etcd:`, `etcds:` | `etcd` (and `tls`) | processes that reach the cluster |
//! | `zk:`, `zookeeper:` | `zk` (and `tls`) | processes that reach the ensemble |
//!
//! The syntax is in [`LockUrl`], the parameters of the layers in [`Registry`], those of a backend in
//! its own documentation. A backend of your own implements [`Backend`] and joins the others:
//!
//! ```
//! # use polylock::memory::MemoryBackend as MyBackend;
//! # fn registry() -> polylock::Result<polylock::Registry> {
//! let registry = polylock::Registry::new().with(MyBackend::default())?;
//! # Ok(registry) }
//! # assert_eq!(registry()?.schemes().collect::<Vec<_>>(), ["memory"]);
//! # Ok::<(), polylock::Error>(())
//! ```
//!
//! # Services
//!
//! The feature `tower` adds a layer that runs requests with the same key one at a time. The features
//! `axum` and `tonic` add its integrations with these: see the module `tower`.
//!
//! # Leaders and jobs
//!
//! [`coordination`] elects a leader among the instances of a service, and runs a job once in its period
//! on all of them.
//!
//! # Without `async`
//!
//! [`blocking`] has the same locks for threads, scripts and programs that start no runtime.
//!
//! # Metrics
//!
//! [`observe`] has metrics of locks, for the `metrics` facade with the feature `metrics`, and for
//! OpenTelemetry with `otel`.
//!
//! # When not to use a lock
//!
//! A lock can be lost while its holder works: the holder is paused, or the network is cut, and the lease
//! ends. An effect that must not happen twice needs a check where the data lives: the [`FencingToken`], a
//! unique constraint, a conditional update. If such a check is enough, you need no lock.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod blocking;
#[cfg(feature = "config")]
pub mod config;
pub mod observe;

use std::sync::{Arc, LazyLock};

pub use polylock_coordination as coordination;
pub use polylock_core::{
    AcquireRequest, Backend, Capabilities, Credentials, DistributedLock, DistributedLockExt, Error,
    ErrorKind, Expiring, Fencing, FencingToken, HealthCheck, Host, IntoTicketError, Label,
    LeaseState, LockGuard, LockKey, LockLifetime, LockUrl, Login, LostReason, LostSignal, Mode,
    MultiGuard, MultiRequestBuilder, Owner, Params, PasswordFile, Registry, Released, Renewal,
    RequestBuilder, Result, Status, Ticket, Wait, Waiting, admin, engine, fencing, layers, memory,
    prelude,
};
#[cfg(feature = "etcd")]
pub use polylock_etcd as etcd;
/// Runs an async function under a lock.
///
/// The lock is acquired when the function is called, and its body runs as by [`LockGuard::run`]: it is
/// dropped when the lock is lost, and the function returns that error. The lock is released before the
/// function returns, also by `return` and `?`.
///
/// # Options
///
/// | option | meaning | default |
/// |---|---|---|
/// | `key = "orders/{id}"` | the key; arguments as in [`format!`], such as the parameters of the function. Or any expression: `key = self.key()` | none, it is required |
/// | `locks = self.locks` | the locks: a [`DistributedLock`], an `Arc` of one, a reference, or the locks of a class of the configuration | the parameter `locks` |
/// | `wait = "2s"` | how long to wait, or `"never"` or `"forever"` | 30 s, or that of the class |
/// | `ttl = "10s"` | the lease, at least 500 ms on Redis (not on a quorum) and in memory, 2 s on etcd, 1 s elsewhere; max 24 h | 30 s, or that of the class |
/// | `max_hold = "8h"` | when renewal ends and the lock is lost, or `"forever"` for never | 1 h, or that of the class |
/// | `shared` | a shared lock | an exclusive one |
///
/// Durations are those of the configuration file, and are checked when the function is compiled. The lock of a
/// function that needs more, such as a permit or a min hold, is one of a class of the configuration, or a
/// [request](DistributedLockExt::request) in its body.
///
/// A parameter marked `#[guard]` is not passed by callers. In the body it is the guard, for its
/// [fencing token](LockGuard::fencing_token).
///
/// # Errors
///
/// The function returns a `Result` whose error is made from an [`Error`] by `From`: that of
/// [`DistributedLock::acquire`], and [`Lost`](ErrorKind::Lost) if the lock is lost before the body is
/// done, which may have had effects. A release that is not confirmed changes no result. It is repeated in
/// the background for one ttl, after which the lock is free, and observers see it as `failed`.
///
/// # Cancel safety
///
/// Dropping the future drops the body, and releases the lock in the background; it is free after one ttl
/// at worst. A panic of the body does the same.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use polylock::prelude::*;
/// use polylock::{Result, locked};
///
/// #[locked(key = "accounts/{account}", wait = "2s")]
/// async fn deposit(
///     locks: &Arc<dyn DistributedLock>,
///     account: u32,
///     balance: &mut i64,
///     amount: i64,
/// ) -> Result<i64> {
///     *balance += amount;
///     Ok(*balance)
/// }
///
/// /// A method, and the token of its lock.
/// struct Reports {
///     locks: Arc<dyn DistributedLock>,
/// }
///
/// impl Reports {
///     #[locked(key = "reports/{name}", locks = self.locks, ttl = "10s")]
///     async fn write(&self, name: &str, #[guard] guard: &LockGuard) -> Result<Option<u64>> {
///         guard.ensure_held()?;
///         Ok(guard.fencing_token().map(u64::from))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock::Result<()> {
/// let locks = polylock::connect("memory:").await?;
/// let mut balance = 40;
/// assert_eq!(deposit(&locks, 7, &mut balance, 2).await?, 42);
///
/// let held = locks.lock("accounts/7").await?;
/// let refused = deposit(&locks, 7, &mut balance, 2).await.expect_err("it is held for 2 s");
/// assert_eq!((refused.kind(), balance), (ErrorKind::Contended, 42));
/// held.release().await?;
///
/// let reports = Reports { locks };
/// assert!(reports.write("daily").await? < reports.write("daily").await?);
/// # Ok(()) }
/// ```
#[cfg(feature = "macros")]
#[cfg_attr(docsrs, doc(cfg(feature = "macros")))]
pub use polylock_macros::locked;
#[cfg(feature = "redis")]
pub use polylock_redis as redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use polylock_sql as sql;
#[cfg(feature = "tower")]
pub use polylock_tower as tower;
#[cfg(feature = "zk")]
pub use polylock_zk as zk;

/// Connects to the lock service at `url`, with the usual layers over the backend.
///
/// The same as [`compiled_in`]`().connect(url)`; see [`Registry::connect`]. Connect once and share
/// the result: tasks queue for a key within one connection.
///
/// # Errors
///
/// - [`InvalidConfig`](ErrorKind::InvalidConfig) if the URL is wrong, or its backend is not
///   compiled in; the message says which feature adds it.
/// - [`Unavailable`](ErrorKind::Unavailable) if the service cannot be reached.
/// - [`Denied`](ErrorKind::Denied) if it refuses the credentials.
///
/// # Cancel safety
///
/// No lock is touched. A dropped future closes what it opened.
///
/// # Examples
///
/// The [example of the crate](crate) uses it. With parameters of the layers:
///
/// ```
/// use polylock::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock::Result<()> {
/// let shop = polylock::connect("memory:one-server?namespace=shop").await?;
/// let blog = polylock::connect("memory:one-server?namespace=blog").await?;
/// let _held = shop.lock("cleanup").await?;
/// assert!(shop.try_lock("cleanup").await?.is_none());
/// assert!(blog.try_lock("cleanup").await?.is_some()); // another lock on the same server
/// # Ok(()) }
/// ```
#[doc(alias = "leader election")]
#[doc(alias = "mutex")]
#[doc(alias = "rwlock")]
#[doc(alias = "semaphore")]
pub async fn connect(url: &str) -> Result<Arc<dyn DistributedLock>> {
    COMPILED_IN.connect(url).await
}

/// The registry of all backends whose features are on.
///
/// Returns a copy for more backends or an observer; [`connect`] does not see them.
/// Copies share the backends, so that `memory:NAME` is one store in the whole process.
///
/// # Examples
///
/// ```
/// assert!(polylock::compiled_in().schemes().any(|scheme| scheme == "memory"));
/// ```
#[doc(alias = "Registry::compiled_in")]
#[must_use]
pub fn compiled_in() -> Registry {
    COMPILED_IN.clone()
}

static COMPILED_IN: LazyLock<Registry> = LazyLock::new(|| {
    let backends = Registry::new().with(memory::MemoryBackend::default());
    #[cfg(feature = "etcd")]
    let backends = backends.and_then(|registry| registry.with(etcd::EtcdBackend::default()));
    #[cfg(feature = "mysql")]
    let backends = backends.and_then(|registry| registry.with(sql::MySqlBackend::default()));
    #[cfg(feature = "postgres")]
    let backends = backends.and_then(|registry| registry.with(sql::PostgresBackend::default()));
    #[cfg(feature = "redis")]
    let backends = backends.and_then(|registry| registry.with(redis::RedisBackend::default()));
    #[cfg(feature = "sqlite")]
    let backends = backends.and_then(|registry| registry.with(sql::SqliteBackend::default()));
    #[cfg(feature = "zk")]
    let backends = backends.and_then(|registry| registry.with(zk::ZooKeeperBackend::default()));
    let backends = backends.expect("BUG: two backends serve one scheme");
    backends.with_features(FEATURES)
});

/// The features of `polylock` that add schemes.
const FEATURES: &[(&str, &str)] = &[
    ("etcd", "etcd"),
    ("etcds", "etcd"),
    ("mariadb", "mysql"),
    ("mysql", "mysql"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("redis", "redis"),
    ("redis+unix", "redis"),
    ("redis-cluster", "redis"),
    ("redis-sentinel", "redis"),
    ("rediss", "redis"),
    ("redlock", "redis"),
    ("sqlite", "sqlite"),
    ("zk", "zk"),
    ("zookeeper", "zk"),
];

/// The programs in the documents compile; what has a `main` and names no server runs.
#[cfg(all(
    doctest,
    feature = "axum",
    feature = "config",
    feature = "macros",
    feature = "postgres",
    feature = "redis"
))]
mod documents {
    #[doc = include_str!("../../docs/configuration.md")]
    mod configuration {}
    #[doc = include_str!("../../docs/coordination.md")]
    mod coordination {}
    #[doc = include_str!("../../docs/errors.md")]
    mod errors {}
    #[doc = include_str!("../../README.md")]
    mod readme {}
    #[doc = include_str!("../../docs/recipes.md")]
    mod recipes {}
    #[doc = include_str!("../../docs/testing.md")]
    mod testing {}
    #[doc = include_str!("../../docs/tower.md")]
    mod tower {}
}
