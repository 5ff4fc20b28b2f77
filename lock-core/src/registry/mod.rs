//! Which backend serves which scheme, and the layers that stand on it.

mod backend;
mod scheme;
mod stack;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::check_process;
use crate::error::{Error, Result};
use crate::event::Observer;
use crate::health::HealthCheck;
use crate::layers::Migrate;
use crate::lock::DistributedLock;
use crate::url::{LockUrl, is_scheme, leading_endpoint, split_scheme};

use self::stack::Stack;

pub use self::backend::Backend;

/// Backends by the schemes of their URLs.
///
/// A plain value: registrations affect this registry alone, and a clone shares the backends.
///
/// # URL parameters
///
/// Those of the layers are the same on every backend:
///
/// | parameter | default | meaning |
/// |---|---|---|
/// | `namespace=NAME` | the backend's | goes before every key, see [`Prefix`]; empty for none |
/// | `local-queue=on` or `off` | `on` | whether tasks of this process queue in it, see [`LocalQueue`] |
/// | `handover-time=TIME` | 25ms | 0s to 60s, see [`LocalQueue::with_handover_time`] |
/// | `max-handovers=N` | 16 | 0 to 1000000, and no time unless it is set too, see [`LocalQueue::with_max_handovers`] |
/// | `max-waiters=N` | 10000 | 1 to 1000000, see [`LocalQueue::with_max_waiters`] |
///
/// [`LocalQueue`]: crate::layers::LocalQueue
/// [`LocalQueue::with_handover_time`]: crate::layers::LocalQueue::with_handover_time
/// [`LocalQueue::with_max_handovers`]: crate::layers::LocalQueue::with_max_handovers
/// [`LocalQueue::with_max_waiters`]: crate::layers::LocalQueue::with_max_waiters
/// [`Prefix`]: crate::layers::Prefix
///
/// # Examples
///
/// ```
/// use polylock_core::Registry;
/// use polylock_core::memory::MemoryBackend;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let registry = Registry::new().with(MemoryBackend::default())?;
/// let locks = registry.connect("memory:?namespace=shop").await?;
/// let guard = locks.lock("orders/42").await?;
/// assert_eq!(guard.key().as_str(), "orders/42");
///
/// let error = registry.connect("memroy:").await.unwrap_err();
/// assert!(error.message().contains(r#"did you mean "memory"?"#));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Registry {
    backends: BTreeMap<&'static str, Arc<dyn Backend>>,
    /// Schemes that are not registered, and the features of `polylock` that add them.
    features: &'static [(&'static str, &'static str)],
    observer: Option<Arc<dyn Observer>>,
}

impl Registry {
    /// Makes an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a backend, for a chain of calls.
    ///
    /// # Errors
    ///
    /// As for [`register`](Registry::register).
    pub fn with(mut self, backend: impl Backend) -> Result<Self> {
        self.register(backend)?;
        Ok(self)
    }

    /// Adds a backend.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if one of its schemes is taken, or is not
    /// a lower-case letter followed by such letters, digits, `+`, `-` and `.`. Then none of them is
    /// registered.
    pub fn register(&mut self, backend: impl Backend) -> Result<&mut Self> {
        for scheme in backend.schemes() {
            if !is_scheme(scheme) || scheme.contains(|c: char| c.is_ascii_uppercase()) {
                return Err(Error::config(format!(
                    "{scheme:?} cannot be the scheme of a URL"
                )));
            }
            if self.backends.contains_key(scheme) {
                return Err(Error::config(format!(
                    "the scheme {scheme:?} is registered already"
                )));
            }
        }
        let backend: Arc<dyn Backend> = Arc::new(backend);
        for scheme in backend.schemes() {
            self.backends.insert(scheme, Arc::clone(&backend));
        }
        Ok(self)
    }

    /// Names features of `polylock` by the schemes that they add, for the error of a scheme that is not
    /// registered.
    #[doc(hidden)]
    #[must_use]
    pub fn with_features(self, features: &'static [(&'static str, &'static str)]) -> Self {
        Self { features, ..self }
    }

    /// Reports the lock events of all later connections to `observer`.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The registered schemes in alphabetical order.
    pub fn schemes(&self) -> impl Iterator<Item = &'static str> {
        self.backends.keys().copied()
    }

    /// Parses a URL as [`LockUrl::parse`] does. If the scheme is missing, it suggests the one whose
    /// [default](Backend::default_port) port matches.
    ///
    /// # Errors
    ///
    /// Those of [`LockUrl::parse`], and [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for a host and
    /// a port without a scheme, such as `cache:6379`. The scheme need not be registered.
    pub fn parse_url(&self, text: &str) -> Result<LockUrl> {
        let trimmed = text.trim();
        if let Some((host, port)) = leading_endpoint(trimmed)
            && !self.is_scheme_without_host(host)
        {
            return Err(self.without_scheme(host, port));
        }
        LockUrl::parse(text).map_err(|error| match split_scheme(trimmed) {
            Some((scheme, rest)) if names_a_host(rest) && self.has_no_host(scheme) => {
                scheme::host_of_a_file(&scheme.to_ascii_lowercase())
            }
            _ => error,
        })
    }

    /// Connects to the service at `url` and builds the usual stack:
    /// [`Observe`](crate::layers::Observe) over [`LocalQueue`](crate::layers::LocalQueue) over
    /// [`Prefix`](crate::layers::Prefix) over the backend.
    ///
    /// # Errors
    ///
    /// Those of [`Backend::connect`], and [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if
    /// nothing is registered for the scheme, or if a parameter of the layers is wrong.
    /// [`Unsupported`](crate::ErrorKind::Unsupported) in a process that was forked after its parent had connected.
    ///
    /// # Cancel safety
    ///
    /// As for [`Backend::connect`].
    pub async fn connect(&self, url: &str) -> Result<Arc<dyn DistributedLock>> {
        self.connect_through(url, std::convert::identity).await
    }

    /// Connects to the service at `url`, and builds the stack that `adapt` makes of that of the URL.
    async fn connect_through(
        &self,
        url: &str,
        adapt: fn(Stack) -> Stack,
    ) -> Result<Arc<dyn DistributedLock>> {
        let (scheme, backend, stack, url) = self.stack_of(url)?;
        let named = |error: Error| error.with_backend(scheme);
        check_process().map_err(named)?;
        let locks = backend.connect(&url).await.map_err(named)?;
        let stack = adapt(stack);
        stack.over(locks, self.observer.as_ref()).map_err(named)
    }

    /// Connects to both services of a migration, each with the usual stack, and acquires each lock on
    /// both, see [`Migrate`]. Both have a local queue, also with `local-queue=off`.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Registry::connect), of either;
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if both URLs name the same, where each lock would
    /// wait for itself; two that are written differently, with another name of the host for example, are
    /// not compared.
    ///
    /// # Cancel safety
    ///
    /// As for [`Backend::connect`].
    pub async fn connect_migrating(
        &self,
        old: &str,
        new: &str,
    ) -> Result<Arc<dyn DistributedLock>> {
        if self.are_same(&self.parse_url(old)?, &self.parse_url(new)?)? {
            return Err(Error::config(
                "the backend to move from is the one to move to",
            ));
        }
        // `Migrate` would put a queue above the observer, which would miss its hand-overs.
        let old = self.connect_through(old, Stack::with_queue).await?;
        let new = self.connect_through(new, Stack::with_queue).await?;
        Ok(Arc::new(Migrate::new(old, new)))
    }

    fn are_same(&self, old: &LockUrl, new: &LockUrl) -> Result<bool> {
        let (old_backend, new_backend) = (self.find(old.scheme())?.1, self.find(new.scheme())?.1);
        Ok(old_backend.schemes() == new_backend.schemes() && old.names_what(new))
    }

    /// Connects to the service at `url`, without any layer.
    ///
    /// Keys have no namespace, owners do not re-enter, and the tasks of this process contend on the
    /// server one by one.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Registry::connect); a parameter of the layers is unknown here.
    ///
    /// # Cancel safety
    ///
    /// As for [`Backend::connect`].
    pub async fn connect_bare(&self, url: &str) -> Result<Arc<dyn DistributedLock>> {
        let url = self.parse_url(url)?;
        let (scheme, backend) = self.find(url.scheme())?;
        let named = |error: Error| error.with_backend(scheme);
        check_process().map_err(named)?;
        backend.connect(&url).await.map_err(named)
    }

    /// Builds the usual stack over `locks` that the application has connected by itself, see
    /// [`connect`](Registry::connect).
    ///
    /// Such locks and those of a URL exclude each other only if both have the same namespace. Without the
    /// parameter `namespace`, a URL has the [default](Backend::default_namespace) of its backend: `lock` for Redis,
    /// and none for a database. An empty namespace is none.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if no key can have such a namespace.
    pub fn stack(
        &self,
        locks: Arc<dyn DistributedLock>,
        namespace: &str,
    ) -> Result<Arc<dyn DistributedLock>> {
        Stack::new(namespace)?.over(locks, self.observer.as_ref())
    }

    /// Checks the service at `url` for known risks of losing locks, see [`Backend::check_health`].
    ///
    /// # Errors
    ///
    /// As for [`connect`](Registry::connect), but the result of a check is not an error.
    ///
    /// # Cancel safety
    ///
    /// As for [`Backend::check_health`].
    pub async fn check_health(&self, url: &str) -> Result<Vec<HealthCheck>> {
        let (scheme, backend, _, url) = self.stack_of(url)?;
        let found = backend.check_health(&url).await;
        found.map_err(|error| error.with_backend(scheme))
    }

    /// Reads a URL as its backend will, without a connection, see [`Backend::check_url`].
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if the URL is wrong, if nothing is
    /// registered for its scheme, or if a parameter of the layers is wrong.
    pub fn check_url(&self, url: &str) -> Result<()> {
        let (_, backend, _, url) = self.stack_of(url)?;
        backend.check_url(&url)
    }

    /// The URL as its backend gets it: without the parameters of the layers.
    ///
    /// For tools that talk to the service of a URL in another way than by locks.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if the URL is wrong, if nothing is
    /// registered for its scheme, or if a parameter of the layers is wrong.
    pub fn backend_url(&self, url: &str) -> Result<LockUrl> {
        self.stack_of(url).map(|(.., url)| url)
    }

    /// The backend of a URL and its scheme, the layers over it, and the URL without their parameters.
    fn stack_of(&self, url: &str) -> Result<(&'static str, &dyn Backend, Stack, LockUrl)> {
        let url = self.parse_url(url)?;
        let (scheme, backend) = self.find(url.scheme())?;
        let stack = Stack::of(&url, backend.default_namespace());
        let (stack, url) = stack.map_err(|error| error.with_backend(scheme))?;
        Ok((scheme, backend, stack, url))
    }

    /// Whether a URL with a registered scheme names no host.
    fn has_no_host(&self, scheme: &str) -> bool {
        let scheme = scheme.to_ascii_lowercase();
        let backend = self.backends.get(scheme.as_str());
        backend.is_some_and(|backend| backend.default_port(&scheme).is_none())
    }

    /// Whether a name before a colon and a number is a scheme: of a path, as in `memory:1`, or one that a
    /// feature would add.
    fn is_scheme_without_host(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let is_registered = self.backends.contains_key(name.as_str());
        self.has_no_host(&name)
            || !is_registered && self.features.iter().any(|(scheme, _)| *scheme == name)
    }

    fn without_scheme(&self, host: &str, port: u16) -> Error {
        let backends = self.backends.values();
        let mut schemes = backends.flat_map(|backend| {
            let schemes = backend.schemes().iter();
            schemes.filter(|scheme| backend.default_port(scheme) == Some(port))
        });
        let registered: Vec<_> = self.schemes().collect();
        scheme::missing(host, port, schemes.next(), &registered)
    }

    fn find(&self, scheme: &str) -> Result<(&'static str, &dyn Backend)> {
        match self.backends.get_key_value(scheme) {
            Some((scheme, backend)) => Ok((scheme, &**backend)),
            None => {
                let registered: Vec<_> = self.schemes().collect();
                Err(scheme::unknown(scheme, &registered, self.features))
            }
        }
    }
}

/// Whether two slashes make a host of what follows a scheme.
fn names_a_host(rest: &str) -> bool {
    let authority = rest.strip_prefix("//");
    authority.is_some_and(|authority| !authority.is_empty() && !authority.starts_with(['/', '?']))
}
