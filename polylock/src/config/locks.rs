//! The open backends of a configuration, and the locks of each class.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use polylock_core::suggest::list;
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, DistributedLockExt, Error, ErrorKind, LockGuard,
    LockKey, MultiGuard, MultiRequestBuilder, RequestBuilder, Result, Ticket, Wait,
};

use super::configuration::Config;
use super::requirement::Requirement;
use super::secret_url::SecretUrl;
use super::settings::{BackendSettings, ClassSettings, LockSettings};
use super::value::{instead_of, quoted};

/// The locks of a configuration: which backend has them, by class.
///
/// Made by [`Config::connect`](super::Config::connect). Clones share the connections.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock::config::Config;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock::Result<()> {
/// let config = Config::parse(r#"
///     [backend.main]
///     url = "memory:"
///     [class.payment]
///     ttl = "2m"
/// "#)?;
/// let locks = config.connect().await?;
/// let backup = locks.default_backend()?.lock("backup").await?;
/// let order = locks.class("payment")?.lock("order/42").await?;
/// assert!(locks.class("payments").is_err()); // did you mean "payment"?
///
/// drop((backup, order));
/// assert!(locks.shutdown(Duration::from_secs(5)).await); // both are released
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locks(Arc<Open>);

#[derive(Debug)]
struct Open {
    default: Option<String>,
    backends: BTreeMap<String, ConfiguredLocks>,
    /// Unused backends of the file.
    closed: Vec<String>,
    classes: BTreeMap<String, ConfiguredLocks>,
}

impl Locks {
    /// The locks of a class.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the configuration has no such class, or if it
    /// is not in the [scope](super::Loader::with_scope).
    pub fn class(&self, name: &str) -> Result<&ConfiguredLocks> {
        find("class", &self.0.classes, name)
    }

    /// The locks of a backend.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the configuration has no such backend, or if
    /// it is not open because it is unused.
    pub fn backend(&self, name: &str) -> Result<&ConfiguredLocks> {
        if self.0.closed.iter().any(|closed| closed == name) {
            return Err(Error::config(format!(
                "the backend {name:?} is not open: it is not the default one and no class has it; \
                 Scope::All opens all of them"
            )));
        }
        find("backend", &self.0.backends, name)
    }

    /// The locks of the default backend.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the configuration has several backends and
    /// does not say which of them is the default one, or if it is not in the
    /// [scope](super::Loader::with_scope).
    pub fn default_backend(&self) -> Result<&ConfiguredLocks> {
        let default = self.0.default.as_deref();
        self.backend(default.ok_or_else(|| {
            Error::config("there is no default backend, write default = \"NAME\"")
        })?)
    }

    /// The names of the backends that are open, in alphabetical order.
    pub fn backends(&self) -> impl Iterator<Item = &str> {
        self.0.backends.keys().map(String::as_str)
    }

    /// Waits for the background releases of all backends; true if all were done `within` the time.
    ///
    /// See [`DistributedLock::shutdown`].
    ///
    /// # Cancel safety
    ///
    /// The releases go on.
    pub async fn shutdown(&self, within: Duration) -> bool {
        let all = self.0.backends.values();
        let all = join_all(all.map(|backend| backend.locks().shutdown(within)));
        all.await.into_iter().all(|is_done| is_done)
    }
}

fn find<'l>(
    kind: &str,
    all: &'l BTreeMap<String, ConfiguredLocks>,
    name: &str,
) -> Result<&'l ConfiguredLocks> {
    all.get(name).ok_or_else(|| {
        let hint = instead_of(name, all.keys().map(String::as_str));
        let name = quoted(name);
        Error::config(format!("the configuration has no {kind} {name}{hint}"))
    })
}

/// The locks of a class, or of a backend, requested as the configuration says.
///
/// The ttl, the wait and the holds are those of the file; each call may still differ by
/// [`request`](Self::request). A class is the [class](AcquireRequest::class) of its requests.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock::config::Config;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock::Result<()> {
/// let config = Config::parse(r#"
///     [backend.main]
///     url = "memory:"
///     [class.payment]
///     wait = "never"
/// "#)?;
/// let locks = config.connect().await?;
/// let payments = locks.class("payment")?;
/// let _held = payments.lock("order/42").await?;
/// assert!(payments.lock("order/42").await.is_err()); // at once, as the class says
///
/// let request = payments.request("order/43").ttl(Duration::from_secs(300)); // this one alone
/// assert!(request.acquire().await?.is_held());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ConfiguredLocks {
    locks: Arc<dyn DistributedLock>,
    settings: LockSettings,
    class: Option<Arc<str>>,
}

impl ConfiguredLocks {
    /// Acquires an exclusive lock, and waits for it as long as the configuration says.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`].
    pub async fn lock<K>(&self, key: K) -> Result<LockGuard>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        self.request(key).acquire().await
    }

    /// Acquires an exclusive lock if it is free; `None` if it is held.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`] except
    /// [`Contended`](polylock_core::ErrorKind::Contended).
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`].
    pub async fn try_lock<K>(&self, key: K) -> Result<Option<LockGuard>>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        self.request(key).try_acquire().await
    }

    /// Acquires an exclusive lock, and waits for it for at most `limit`.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`].
    pub async fn lock_within<K>(&self, key: K, limit: Duration) -> Result<LockGuard>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        self.request(key).wait(Wait::AtMost(limit)).acquire().await
    }

    /// Acquires exclusive locks on all of the keys or on none, see
    /// [`DistributedLockExt::lock_all`].
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`]; nothing stays held.
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`], for each key.
    pub async fn lock_all<I>(&self, keys: I) -> Result<MultiGuard>
    where
        I: IntoIterator<Item: TryInto<LockKey, Error: Into<Error>>>,
    {
        self.request_all(keys).acquire().await
    }

    /// Adopts the lock of a ticket, with the options of the configuration; see
    /// [`DistributedLockExt::adopt`]. The rest of the min hold comes from the ticket.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLockExt::adopt`].
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::adopt`].
    pub async fn adopt(&self, ticket: &Ticket) -> Result<LockGuard> {
        let request = self.apply(AcquireRequest::adopting(ticket));
        let (least, longest) = (ticket.min_hold(), request.max_hold());
        let longest = longest.map(|longest| longest.max(least));
        let request = request.with_min_hold(least).with_max_hold(longest);
        self.locks.acquire(&request).await
    }

    /// Starts a request with the options of the configuration, which may be changed.
    pub fn request<K>(&self, key: K) -> RequestBuilder<'_, dyn DistributedLock>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        let request = (*self.locks).request(key);
        request.with(|request| self.apply(request))
    }

    /// Starts a request for several keys with the options of the configuration.
    pub fn request_all<I>(&self, keys: I) -> MultiRequestBuilder<'_, dyn DistributedLock>
    where
        I: IntoIterator<Item: TryInto<LockKey, Error: Into<Error>>>,
    {
        (*self.locks)
            .request_all(keys)
            .with(|request| self.apply(request))
    }

    /// Sets what the configuration says, and leaves the rest of the request as it is.
    #[must_use]
    pub fn apply(&self, request: AcquireRequest) -> AcquireRequest {
        let request = self.settings.apply(request);
        match &self.class {
            Some(class) => request.with_class(Arc::clone(class)),
            None => request,
        }
    }

    /// Starts a locker of requests, such as those of HTTP, for keys in `namespace`, with the wait,
    /// the ttl and the holds of the configuration.
    ///
    /// Settings that a class omits come from its backend, from the file or the environment. Settings
    /// that both omit are the defaults of a [`Locker`](polylock_tower::Locker): a wait of 2 s, a max
    /// hold of 5 min, a ttl of 30 s. They differ from [`lock`](Self::lock), which waits for 30 s and
    /// holds for up to 1 h, and from the defaults that [`effective`](super::Config::effective) shows.
    /// Methods of the builder override all of them for this locker.
    ///
    /// The class of the requests, a label of metrics, is that of the configuration, or the namespace
    /// if there is none.
    #[cfg(feature = "tower")]
    pub fn locker(&self, namespace: &str) -> polylock_tower::LockerBuilder {
        polylock_tower::Locker::builder(Arc::clone(&self.locks), namespace)
            .request(|request| self.apply(request))
    }

    /// The name of the class, if it is one.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// How locks are requested.
    #[must_use]
    pub fn lock_settings(&self) -> &LockSettings {
        &self.settings
    }

    /// What the backend can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.locks.capabilities()
    }

    /// The locks without the options of the configuration, for callers that build their own requests.
    #[must_use]
    pub fn locks(&self) -> &Arc<dyn DistributedLock> {
        &self.locks
    }
}

/// Locks without a configuration, requested with the defaults of [`AcquireRequest`]: for tests of code
/// that takes the locks of a class.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use polylock::DistributedLock;
/// use polylock::config::ConfiguredLocks;
/// use polylock::memory::Memory;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock::Result<()> {
/// let store = Memory::new(); // its faults are planned by `store.faults()`
/// let locks: Arc<dyn DistributedLock> = Arc::new(store.client());
/// let payments = ConfiguredLocks::from(locks);
/// assert!(payments.try_lock("order/42").await?.is_some());
/// # Ok(()) }
/// ```
impl From<Arc<dyn DistributedLock>> for ConfiguredLocks {
    fn from(locks: Arc<dyn DistributedLock>) -> Self {
        Self {
            locks,
            settings: LockSettings::default(),
            class: None,
        }
    }
}

/// Opens the used backends, all at the same time, and compares capabilities with requirements.
pub(super) async fn connect(config: &Config) -> Result<Locks> {
    let backends = config.backends.iter();
    let (used, closed): (Vec<_>, Vec<_>) = backends.partition(|backend| backend.is_opened);
    let opened = join_all(used.iter().map(|backend| open(config, backend))).await;
    let closed = closed.iter().map(|backend| backend.name.clone()).collect();
    let mut open = Open {
        default: config.default.clone(),
        backends: BTreeMap::new(),
        closed,
        classes: BTreeMap::new(),
    };
    let mut wrong = Vec::new();
    for (backend, opened) in used.iter().zip(opened) {
        let name = backend.name.clone();
        match opened {
            Ok(locks) => {
                let settings = backend.lock_settings;
                wrong.extend(too_short("backend", &name, settings.ttl, &locks));
                let locks = ConfiguredLocks {
                    locks,
                    settings,
                    class: None,
                };
                open.backends.insert(name, locks);
            }
            Err(error) => {
                let message = format!("the backend {name:?} cannot be opened");
                wrong.push(Error::new(error.kind(), message).with_source(error));
            }
        }
    }
    for class in config.classes.iter().filter(|class| class.is_opened) {
        let Some(backend) = open.backends.get(&class.backend) else {
            continue;
        };
        wrong.extend(unmet(class, &open));
        let ttl = class.lock_settings.ttl;
        if ttl != backend.settings.ttl {
            wrong.extend(too_short("class", &class.name, ttl, &backend.locks));
        }
        let locks = ConfiguredLocks {
            locks: Arc::clone(&backend.locks),
            settings: class.lock_settings,
            class: Some(class.name.as_str().into()),
        };
        open.classes.insert(class.name.clone(), locks);
    }
    match merged(wrong) {
        Some(error) => Err(error),
        None => Ok(Locks(Arc::new(open))),
    }
}

async fn open(config: &Config, backend: &BackendSettings) -> Result<Arc<dyn DistributedLock>> {
    let url = |name: &str| {
        let found = config.backends.iter().find(|known| known.name == name);
        let url = found.and_then(|known| known.url.as_ref());
        let url = url.map(SecretUrl::expose);
        url.ok_or_else(|| Error::config(format!("the backend {name:?} has no URL")))
    };
    let new = url(&backend.name)?;
    match &backend.migrate_from {
        Some(old) => config.registry.connect_migrating(url(old)?, new).await,
        None => config.registry.connect(new).await,
    }
}

/// The requirements of a class that its backend does not meet, and the backends that do.
fn unmet(class: &ClassSettings, open: &Open) -> Option<Error> {
    let lacking = |locks: &ConfiguredLocks| -> Vec<&Requirement> {
        let capabilities = locks.capabilities();
        let requirements = class.require.iter();
        requirements
            .filter(|wanted| !wanted.is_met_by(&capabilities))
            .collect()
    };
    let has = &open.backends[&class.backend];
    let missing = lacking(has);
    if missing.is_empty() {
        return None;
    }
    let others = open
        .backends
        .iter()
        .filter(|(_, locks)| lacking(locks).is_empty());
    let closed = match open.closed.is_empty() {
        true => String::new(),
        false => {
            let closed = list(open.closed.iter().map(String::as_str));
            format!("; not asked, because nothing uses them: {closed}")
        }
    };
    let message = format!(
        "the class {:?} requires {}, which {} of its backend {:?} does not have (backends that have \
         all it requires: {}{closed})",
        class.name,
        list(missing.iter().map(|wanted| wanted.name())),
        has.capabilities().backend,
        class.backend,
        list(others.map(|(name, _)| name.as_str())),
    );
    Some(Error::new(ErrorKind::Unsupported, message))
}

/// A ttl that every request would be refused for.
fn too_short(
    what: &str,
    name: &str,
    ttl: Option<Duration>,
    locks: &Arc<dyn DistributedLock>,
) -> Option<Error> {
    let Capabilities {
        backend, min_ttl, ..
    } = locks.capabilities();
    let ttl = ttl.filter(|ttl| *ttl < min_ttl)?;
    Some(Error::config(format!(
        "the ttl of the {what} {name:?} must be {min_ttl:?} or more on {backend}, not {ttl:?}"
    )))
}

/// One error for all, with the kind of the first.
fn merged(mut errors: Vec<Error>) -> Option<Error> {
    if errors.len() < 2 {
        return errors.pop();
    }
    let messages = errors.iter().map(|error| match error.source() {
        Some(source) => format!("{}: {source}", error.message()),
        None => error.message().to_owned(),
    });
    let messages: Vec<_> = messages.collect();
    Some(Error::new(errors.first()?.kind(), messages.join("; ")))
}
