use std::future::Future;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::error::{Error, ErrorKind, Result};
use crate::guard::{LockGuard, MultiGuard};
use crate::key::LockKey;
use crate::label::Label;
use crate::layers::acquire_all;
use crate::lock::DistributedLock;
use crate::mode::{Mode, Renewal, Wait};
use crate::owner::Owner;
use crate::request::AcquireRequest;
use crate::ticket::Ticket;

/// Convenience methods for every [`DistributedLock`]; never implemented by hand.
///
/// Keys are taken as `&str`, `String` or [`LockKey`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let reader = locks.request("report").shared().ttl(Duration::from_secs(10)).acquire().await?;
/// assert!(locks.try_lock("report").await?.is_none());
/// reader.release().await?;
/// assert!(locks.try_lock("report").await?.is_some());
/// # Ok(()) }
/// ```
pub trait DistributedLockExt: DistributedLock {
    /// Acquires an exclusive lock, and waits for it for at most 30 s. Its lease of 30 s is renewed until the
    /// guard is released or dropped, for at most 1 h: see [`RequestBuilder::max_hold`].
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the queue, and releases a granted lock in the background; at worst the lock
    /// is free after one ttl. Poll it or drop it: a future that is kept without being polled keeps its turn, and
    /// the lock that it is granted.
    fn lock<K>(&self, key: K) -> impl Future<Output = Result<LockGuard>> + Send
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        self.request(key).acquire()
    }

    /// Acquires an exclusive lock without waiting; `None` if it is held.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`] except [`Contended`](ErrorKind::Contended).
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](DistributedLockExt::lock).
    fn try_lock<K>(&self, key: K) -> impl Future<Output = Result<Option<LockGuard>>> + Send
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        self.request(key).try_acquire()
    }

    /// Acquires an exclusive lock, and waits for it for at most `limit`.
    ///
    /// The error of a timeout may come 250 ms later: see [`RequestBuilder::acquire`].
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](DistributedLockExt::lock).
    fn lock_within<K>(
        &self,
        key: K,
        limit: Duration,
    ) -> impl Future<Output = Result<LockGuard>> + Send
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        self.request(key).wait(Wait::AtMost(limit)).acquire()
    }

    /// Acquires exclusive locks on all of the keys or on none, and waits at most 30 s in total.
    ///
    /// The keys are sorted first, so that two callers with the same keys in different orders cannot
    /// deadlock. A key that is named twice is locked once.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`], and [`Lost`](ErrorKind::Lost) if a lock is lost while the next
    /// ones are waited for; nothing stays held.
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](DistributedLockExt::lock), for each key.
    ///
    /// # Examples
    ///
    /// ```
    /// use polylock_core::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
    /// let locks = polylock_core::memory::Memory::new();
    /// let both = locks.lock_all(["acct/2", "acct/1"]).await?;
    /// assert_eq!(both.guards()[0].key().as_str(), "acct/1");
    /// assert!(locks.try_lock("acct/2").await?.is_none());
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    fn lock_all<I>(&self, keys: I) -> impl Future<Output = Result<MultiGuard>> + Send
    where
        I: IntoIterator<Item: TryInto<LockKey, Error: Into<Error>>>,
    {
        self.request_all(keys).acquire()
    }

    /// Adopts the lock of a ticket, which another process held until then.
    ///
    /// The guard behaves like an acquired one: it is renewed, its [fencing token](LockGuard::fencing_token)
    /// is larger than that of the ticket, and its deadline counts from just before the request. The backend,
    /// the key and its namespace must be those of the process that made the ticket. If several callers adopt
    /// one ticket, only one gets the lock. Tasks of this process that wait for the key keep waiting at the
    /// server, and no call re-enters the lock as the same [`Owner`].
    ///
    /// A request without a reply is retried for at most 30 s, and no longer than the lease can last. For
    /// another limit and other options: [`AcquireRequest::adopting`].
    ///
    /// # Errors
    ///
    /// - [`Lost`](ErrorKind::Lost) if the lease has ended, was released or broken, or was adopted before.
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest) if the ticket is one of another backend; nothing is
    ///   sent.
    /// - [`Unsupported`](ErrorKind::Unsupported) where [`Capabilities::tickets`](crate::Capabilities) is
    ///   false.
    /// - [`Unavailable`](ErrorKind::Unavailable) if the server does not answer. If it may have acted
    ///   ([`Error::is_outcome_unknown`]) the lock is released in the background; otherwise the ticket can
    ///   be adopted until its lease ends.
    ///
    /// # Cancel safety
    ///
    /// An adopted lock is released in the background; at worst it is free when the lease ends. If the server
    /// has not seen the request, the ticket can still be adopted.
    ///
    /// # Examples
    ///
    /// [`Ticket`] has one.
    fn adopt(&self, ticket: &Ticket) -> impl Future<Output = Result<LockGuard>> + Send {
        let request = AcquireRequest::adopting(ticket);
        async move { self.acquire(&request).await }
    }

    /// Checks that the server answers, for the readiness endpoint of a service.
    ///
    /// Sends one read on a connection that locks use, for a key that no client locks
    /// ([`LockAdmin::inspect`](crate::admin::LockAdmin::inspect)). `Ok` means that the server answered, for
    /// a quorum most of its servers, and that this client may read its locks.
    ///
    /// # Errors
    ///
    /// - [`Unavailable`](ErrorKind::Unavailable) without a reply `within` the time. Outside of a tokio
    ///   runtime the timeout of the backend applies instead.
    /// - [`Unsupported`](ErrorKind::Unsupported) if the backend has no
    ///   [`admin`](DistributedLock::admin).
    /// - Others of `inspect`, such as [`Denied`](ErrorKind::Denied).
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use polylock_core::prelude::*;
    ///
    /// async fn is_ready(locks: &dyn DistributedLock) -> bool {
    ///     locks.ping(Duration::from_secs(1)).await.is_ok()
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # assert!(is_ready(&polylock_core::memory::Memory::new()).await);
    /// # }
    /// ```
    fn ping(&self, within: Duration) -> impl Future<Output = Result<()>> + Send {
        ask(self, within)
    }

    /// Starts a request that differs from the defaults of [`AcquireRequest`].
    fn request<K>(&self, key: K) -> RequestBuilder<'_, Self>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        let request = key.try_into().map(AcquireRequest::new).map_err(Into::into);
        RequestBuilder {
            lock: self,
            request,
        }
    }

    /// Starts a request for several keys, all or nothing.
    fn request_all<I>(&self, keys: I) -> MultiRequestBuilder<'_, Self>
    where
        I: IntoIterator<Item: TryInto<LockKey, Error: Into<Error>>>,
    {
        let keys = keys.into_iter();
        let keys = keys.map(|key| key.try_into().map_err(Into::into)).collect();
        // Each of the keys takes the place of this one.
        let request = self.request("*");
        MultiRequestBuilder { keys, request }
    }
}

impl<L: DistributedLock + ?Sized> DistributedLockExt for L {}

/// The options of a request for one key and of one for several, which differ in `with`.
macro_rules! options {
    () => {
        /// Asks for a shared lock. Default: an exclusive one.
        #[doc(alias = "rwlock")]
        pub fn shared(self) -> Self {
            self.with(|request| request.with_mode(Mode::Shared))
        }

        /// Asks for one of `limit` permits. Default: an exclusive lock.
        #[doc(alias = "semaphore")]
        pub fn permit(self, limit: NonZeroU32) -> Self {
            self.with(|request| request.with_mode(Mode::Permit { limit }))
        }

        /// Sets how long to wait: for the key, or for all keys together; see [`AcquireRequest::with_wait`].
        /// Default: at most 30 s.
        pub fn wait(self, wait: Wait) -> Self {
            self.with(|request| request.with_wait(wait))
        }

        /// Sets the lease; see [`AcquireRequest::with_ttl`] for its limits. Default: 30 s.
        #[doc(alias = "lease")]
        pub fn ttl(self, ttl: Duration) -> Self {
            self.with(|request| request.with_ttl(ttl))
        }

        /// Leaves renewal to the caller; see [`Renewal::Manual`]. Default: automatic renewal.
        pub fn manual_renewal(self) -> Self {
            self.with(|request| request.with_renewal(Renewal::Manual))
        }

        /// Sets the minimum hold; see [`AcquireRequest::with_min_hold`]. Default: zero.
        pub fn min_hold(self, min_hold: Duration) -> Self {
            self.with(|request| request.with_min_hold(min_hold))
        }

        /// Sets the longest hold; see [`AcquireRequest::with_max_hold`]. Default: 1 h.
        pub fn max_hold(self, max_hold: impl Into<Option<Duration>>) -> Self {
            self.with(|request| request.with_max_hold(max_hold))
        }

        /// Sets the owner; see [`AcquireRequest::with_owner`]. Default: none.
        pub fn owner(self, owner: &Owner) -> Self {
            self.with(|request| request.with_owner(owner.clone()))
        }

        /// Sets the label of the holder that others see; see [`AcquireRequest::with_label`]. Default: host,
        /// process id and program.
        pub fn label(self, label: Label) -> Self {
            self.with(|request| request.with_label(label))
        }

        /// Names the kind of work; see [`AcquireRequest::with_class`]. Default: none.
        pub fn class(self, class: &str) -> Self {
            self.with(|request| request.with_class(class))
        }
    };
}

/// A request about to be sent; see [`DistributedLockExt::request`].
///
/// # Examples
///
/// At most two holders send mail at a time:
///
/// ```
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// use polylock_core::prelude::*;
///
/// const LIMIT: NonZeroU32 = NonZeroU32::new(2).expect("two is not zero");
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let request = || locks.request("smtp").permit(LIMIT).ttl(Duration::from_secs(10));
/// let first = request().acquire().await?;
/// let _second = request().acquire().await?;
/// assert!(request().try_acquire().await?.is_none());
///
/// first.release().await?;
/// assert!(request().try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "nothing is acquired before `acquire` or `try_acquire`"]
#[derive(Debug)]
pub struct RequestBuilder<'a, L: ?Sized> {
    lock: &'a L,
    /// An invalid key is reported when the request is sent.
    request: Result<AcquireRequest>,
}

impl<L: DistributedLock + ?Sized> RequestBuilder<'_, L> {
    /// Applies `with` to the request, for options that are stored elsewhere.
    pub fn with(mut self, with: impl FnOnce(AcquireRequest) -> AcquireRequest) -> Self {
        self.request = self.request.map(with);
        self
    }

    options!();

    /// Acquires the lock and waits for it.
    ///
    /// After a timeout it looks up the [`holder`](Error::holder), for at most 250 ms and one lookup at a
    /// time in a process.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`].
    pub async fn acquire(self) -> Result<LockGuard> {
        let Self { lock, request } = self;
        let request = request?;
        match lock.acquire(&request).await {
            Ok(guard) => Ok(guard),
            // In a box, or each future that acquires would be larger.
            Err(error) => Err(Box::pin(name_holder(lock, request.wait(), error)).await),
        }
    }

    /// Makes one attempt; `None` if the lock is held.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`] except [`Contended`](ErrorKind::Contended).
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`].
    pub async fn try_acquire(self) -> Result<Option<LockGuard>> {
        let Self { lock, request } = self.wait(Wait::Never);
        unless_contended(lock.acquire(&request?).await)
    }
}

/// A request for several keys; see [`DistributedLockExt::request_all`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let both = locks
///     .request_all(["acct/1", "acct/2"])
///     .wait(Wait::AtMost(Duration::from_secs(2)))
///     .ttl(Duration::from_secs(10))
///     .acquire()
///     .await?;
/// assert_eq!(both.guards().len(), 2);
///
/// // One of the two is held: the other one stays free.
/// assert!(locks.request_all(["acct/2", "acct/3"]).try_acquire().await?.is_none());
/// assert!(locks.try_lock("acct/3").await?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "nothing is acquired before `acquire` or `try_acquire`"]
#[derive(Debug)]
pub struct MultiRequestBuilder<'a, L: ?Sized> {
    keys: Result<Vec<LockKey>>,
    request: RequestBuilder<'a, L>,
}

impl<L: DistributedLock + ?Sized> MultiRequestBuilder<'_, L> {
    /// Applies `with` to the request for each of the keys, for options that are stored elsewhere.
    pub fn with(mut self, with: impl FnOnce(AcquireRequest) -> AcquireRequest) -> Self {
        self.request = self.request.with(with);
        self
    }

    options!();

    /// Acquires all of the locks and waits for them.
    ///
    /// After a timeout it looks up the holder, as [`RequestBuilder::acquire`] does.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`], and [`Lost`](ErrorKind::Lost) if a lock is lost while the next
    /// ones are waited for; nothing stays held.
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`], for each key.
    pub async fn acquire(self) -> Result<MultiGuard> {
        let mut keys = self.keys?;
        // Every caller uses the same order, so crossing pairs cannot deadlock.
        keys.sort();
        keys.dedup();
        let RequestBuilder { lock, request } = self.request;
        let request = request?;
        let keys = keys.into_iter();
        let requests: Vec<_> = keys.map(|key| request.clone().with_key(key)).collect();
        match acquire_all(lock, &requests).await {
            Ok(guards) => Ok(MultiGuard::new(guards)),
            Err(error) => Err(Box::pin(name_holder(lock, request.wait(), error)).await),
        }
    }

    /// Makes one attempt; `None` if one of the locks is held.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire) except [`Contended`](ErrorKind::Contended).
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`], for each key.
    pub async fn try_acquire(self) -> Result<Option<MultiGuard>> {
        unless_contended(self.wait(Wait::Never).acquire().await)
    }
}

async fn ask<L: DistributedLock + ?Sized>(lock: &L, within: Duration) -> Result<()> {
    let unsupported = || Error::new(ErrorKind::Unsupported, "the backend answers no questions");
    let admin = lock.admin().ok_or_else(unsupported)?;
    let key = LockKey::new("polylock/ping").expect("BUG: a literal is a key");
    let question = admin.inspect(&key);
    // The timer needs a runtime.
    if Handle::try_current().is_err() {
        return question.await.map(drop);
    }
    let silent = |_| {
        let message = format!("the server did not answer within {within:?}");
        Error::new(ErrorKind::Unavailable, message)
    };
    tokio::time::timeout(within, question)
        .await
        .map_err(silent)?
        .map(drop)
}

/// Adds the holder to the error of a wait that has timed out.
async fn name_holder<L: DistributedLock + ?Sized>(lock: &L, wait: Wait, error: Error) -> Error {
    // With an unknown outcome, the holder may be this acquisition itself.
    let is_held = error.kind() == ErrorKind::Contended && !error.is_outcome_unknown();
    // The timer needs a runtime.
    if !is_held || !wait.waits() || Handle::try_current().is_err() {
        return error;
    }
    let (Ok(_turn), Some(admin), Some(key)) = (LOOKS.try_acquire(), lock.admin(), error.key())
    else {
        return error;
    };
    let look = tokio::time::timeout(HOLDER_LOOKUP_TIMEOUT, admin.inspect(key)).await;
    let info = look.ok().and_then(Result::ok).flatten();
    match info.and_then(|info| info.holders.into_iter().next()) {
        Some(holder) => error.with_holder(holder),
        None => error,
    }
}

/// Limits a process to one lookup at a time. When many waits end together, the others skip it.
static LOOKS: Semaphore = Semaphore::const_new(1);

/// Longest time to look for the holder after a wait has timed out.
const HOLDER_LOOKUP_TIMEOUT: Duration = Duration::from_millis(250);

fn unless_contended<G>(result: Result<G>) -> Result<Option<G>> {
    match result {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
        Err(error) => Err(error),
    }
}
