mod backoff;
mod leader;
mod leadership;
mod role;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use polylock_core::engine::{Entropy as _, OsEntropy};
use polylock_core::{AcquireRequest, DistributedLock, Error, Label, LockKey, Result, Wait};
use tokio::time::{Instant, sleep};

use crate::observer::{CoordinationEvent, CoordinationObserver, emit};
use crate::requirements::check;

use self::leader::Observation;
use self::role::Role;

pub use self::backoff::Backoff;
pub use self::leader::Leader;
pub use self::leadership::{Leadership, Term};

/// Elects one leader among the instances that use the same locks and the same name.
///
/// Each instance makes one and calls [`lead`](Self::lead), or [`campaign`](Self::campaign) in a loop of its
/// own; followers use [`observe`](Self::observe). A clone stands for the same instance.
///
/// # Guarantees
///
/// Those of an exclusive lock on the name, renewed without end. Before the server can elect another leader,
/// the former leader's [`lost`](Term::lost) and [`ended`](Term::ended) fire and
/// [`leads`](Self::leads) turns false; its work is not polled any more, and is dropped as soon as its
/// runtime runs. The exception is a lock that is taken away:
/// `docs/guarantees.md` says when. Where waiters queue
/// ([`Capabilities::fair`](polylock_core::Capabilities)), the instance that has waited longest is next. If
/// the locks also queue in the process, only one candidate of a shared connection is in that queue at a
/// time.
///
/// Before it exits, a process should drop its leaders and await
/// [`shutdown`](polylock_core::DistributedLock::shutdown) of the locks. Otherwise the next instance leads
/// only when the lease has ended.
///
/// # Cost
///
/// A waiting candidate is one waiter on the server. On Redis it sends a heartbeat every fifth of the ttl, at
/// least once a second. Elsewhere it keeps its session or connection alive, or polls where waiters are not
/// notified. A leader renews its lock every third of the ttl. A resignation costs one release, which elects
/// the next leader where waiters are notified. An observing follower calls
/// [`leader`](Self::leader) once a second: two requests on most backends, and N + 4 for N candidates on
/// ZooKeeper.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use polylock_coordination::Election;
/// use polylock_core::memory::Memory;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let store = Memory::new();
/// let here = Election::new(Arc::new(store.client()), "scheduler")?;
/// let there = Election::new(Arc::new(store.client()), "scheduler")?;
///
/// let leadership = here.campaign().await?;
/// leadership.proclaim("10.0.0.7:9000").await?;
/// let leader = there.leader().await?.expect("somebody leads");
/// assert_eq!(leader.address.as_deref(), Some(&b"10.0.0.7:9000"[..]));
///
/// let (next, _) = tokio::join!(there.campaign(), leadership.resign());
/// assert!(there.leads() && !here.leads());
/// # drop(next);
/// # Ok(()) }
/// ```
#[doc(alias = "leader election")]
#[derive(Clone)]
pub struct Election {
    locks: Arc<dyn DistributedLock>,
    request: AcquireRequest,
    role: Arc<Role>,
    observer: Option<Arc<dyn CoordinationObserver>>,
}

impl Election {
    /// Longest address that a leader can [proclaim](Term::proclaim), in bytes.
    pub const MAX_ADDRESS_LEN: usize = 2048;

    /// Makes a candidate of the election `name`, which is the key of its lock and the class of its
    /// metrics. Nothing is sent.
    ///
    /// No other code should lock that key: a job of the same name waits while there is a leader, and each
    /// replaces the record of the other.
    ///
    /// # Errors
    ///
    /// - [`Unsupported`](polylock_core::ErrorKind::Unsupported) if the backend has no fencing tokens or no
    ///   administration.
    /// - [`InvalidKey`](polylock_core::ErrorKind::InvalidKey) if the name is not a key.
    pub fn new<K>(locks: Arc<dyn DistributedLock>, name: K) -> Result<Self>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        check(&*locks)?;
        let name: LockKey = name.try_into().map_err(Into::into)?;
        let request = AcquireRequest::new(name.clone())
            .with_class(name.as_str())
            .with_wait(Wait::Forever)
            .with_max_hold(None)
            // The server has to know each leader by its own label and token.
            .without_hand_over();
        Ok(Self {
            locks,
            request,
            role: Arc::default(),
            observer: None,
        })
    }

    /// Sets the lease: a leader that dies is replaced after that time at the latest. Default: 30 s; the
    /// range is that of [`AcquireRequest::with_ttl`], and an election with another one fails.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request = self.request.with_ttl(ttl);
        self
    }

    /// Sets the label of this candidate that others see. Default: host, process id, user and program.
    /// Candidates of one process should differ in their note. The server stores a 22-byte id of the term
    /// before the note, which `lockctl list` shows; both together are cut to [`Label::MAX_NOTE_LEN`].
    #[must_use]
    pub fn label(mut self, label: Label) -> Self {
        self.request = self.request.with_label(label);
        self
    }

    /// Sets the observer of elections, for metrics. Default: none.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn CoordinationObserver>) -> Self {
        self.observer = Some(observer);
        let election = self.name();
        self.emit(&CoordinationEvent::Candidate { election });
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.request.key().as_str()
    }

    /// Waits without a limit until this instance leads.
    ///
    /// The result is a guard; dropping it resigns.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`] except [`Contended`](polylock_core::ErrorKind::Contended):
    /// the wait ends with [`Unavailable`](polylock_core::ErrorKind::Unavailable) if the server cannot be
    /// reached, and has to be repeated then, as [`lead`](Self::lead) does.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the queue and releases a granted lock; at worst the lock is free after one
    /// ttl.
    pub async fn campaign(&self) -> Result<Leadership> {
        let mut id = [0; 8];
        OsEntropy::default().fill(&mut id);
        let label = leader::with_term(self.request.label(), u64::from_le_bytes(id));
        let request = self.request.clone().with_label(label.clone());
        let guard = self.locks.acquire(&request).await?;
        Leadership::begin(self, label, guard)
    }

    /// Campaigns repeatedly, and runs `work` whenever this instance leads.
    ///
    /// A term ends when `work` returns, fails or the lock is lost; then `work` is dropped before the lock is
    /// released or can pass to another holder, unless its runtime is blocked: then it is dropped after that, and
    /// not polled meanwhile. The next campaign begins after a backoff, which grows from
    /// 0.5 s to 10 s while terms are short, less up to a half at random. The same backoff applies to an
    /// unreachable server. Errors of `work` are logged at warn.
    ///
    /// `work` returns a `Result`, whose types an inline `async` block has to name: end the block with
    /// `Ok::<_, polylock_core::Error>(())`. A block that loops forever has no end. Pass an `async fn`, or call
    /// `election.lead::<_, _, (), polylock_core::Error>(|term| async move { .. })`.
    ///
    /// # Errors
    ///
    /// It returns only an error that a retry cannot fix ([`is_retryable`](Error::is_retryable) is false),
    /// such as [`Denied`](polylock_core::ErrorKind::Denied) or
    /// [`InvalidRequest`](polylock_core::ErrorKind::InvalidRequest), and logs it at error.
    ///
    /// # Panics
    ///
    /// If `work` does; the leader has resigned then.
    ///
    /// # Cancel safety
    ///
    /// Drop the future to stop it. That drops `work` first and then resigns, in the background; at worst the
    /// lock is free after one ttl.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use polylock_coordination::Election;
    /// use polylock_core::memory::Memory;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
    /// let election = Election::new(Arc::new(Memory::new()), "scheduler")?;
    /// let candidate = election.clone();
    /// let candidate = tokio::spawn(async move {
    ///     candidate
    ///         .lead(|term| async move {
    ///             term.proclaim("10.0.0.7:9000").await?;
    ///             std::future::pending::<polylock_core::Result<()>>().await // the work
    ///         })
    ///         .await
    /// });
    /// election.started_leading().await;
    /// candidate.abort(); // resigns
    /// election.stopped_leading().await;
    /// # Ok(()) }
    /// ```
    #[must_use = "this instance stands for election no more"]
    pub async fn lead<W, F, T, E>(&self, mut work: W) -> Error
    where
        W: FnMut(Term) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: fmt::Display + Send,
    {
        let mut backoff = Backoff::new();
        loop {
            let lasted = match self.serve(&mut work).await {
                Ok(lasted) => lasted,
                Err(error) if !error.is_retryable() => {
                    tracing::error!(election = self.name(), %error, "campaigns no more");
                    return error;
                }
                Err(error) => {
                    tracing::warn!(election = self.name(), %error, "campaign failed");
                    Duration::ZERO
                }
            };
            sleep(backoff.pause_after(lasted)).await;
        }
    }

    /// One term; returns how long it lasted.
    async fn serve<W, F, T, E>(&self, work: &mut W) -> Result<Duration>
    where
        W: FnMut(Term) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: fmt::Display + Send,
    {
        let leadership = self.campaign().await?;
        let (election, began) = (self.name(), Instant::now());
        match leadership.run(work(Term::clone(&leadership))).await {
            Ok(Ok(_)) => tracing::debug!(election, "the work of the leader has ended"),
            Ok(Err(error)) => tracing::warn!(election, %error, "the work of the leader failed"),
            Err(error) => tracing::debug!(election, %error, "the leader was deposed"),
        }
        let lasted = began.elapsed();
        if let Err(error) = leadership.resign().await {
            // It is repeated in the background.
            tracing::debug!(election, %error, "the resignation is not confirmed");
        }
        Ok(lasted)
    }

    /// Whether this instance leads in any term, by the clock of this moment; for a health endpoint, with a clone of
    /// the election. The work of a leader checks [`Term::leads`] before each step instead: a task of an earlier term
    /// must stop in a later one.
    ///
    /// False at once after a suspension of the machine beyond the end of the lease.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.role.leads()
    }

    /// Waits until this instance leads in any term, or returns at once if it does.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    pub async fn started_leading(&self) {
        self.role.started().await;
    }

    /// Waits until this instance leads in no term, or returns at once if it does not lead.
    ///
    /// It is ready when the leader resigns or loses the lock. The engine notices a loss, no later than at the end of
    /// the lease, even while a renewal hangs or the runtime of the program is blocked. After a suspension of the
    /// machine beyond that end this may return up to a second late, while [`leads`](Self::leads) is false at once.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    pub async fn stopped_leading(&self) {
        self.role.stopped().await;
    }

    /// Asks the server for the leader; `None` if there is none.
    ///
    /// Sends two requests, or one without a leader. On etcd it sends three, and on a quorum two to each node. On
    /// ZooKeeper it reads the node of each candidate: N + 4 requests for N candidates, the leader included.
    ///
    /// # Errors
    ///
    /// Those of [`LockAdmin::inspect`](polylock_core::admin::LockAdmin::inspect).
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let seen = leader::look(&*self.locks, self.request.key()).await?;
        Ok(seen.map(|seen| seen.leader))
    }

    /// Follows the leader: the first item is the current leader, and each later one is a change of the
    /// leader, of its term or of its address. `None` means that there is no leader.
    ///
    /// It polls once a second, so that a short term may be missed. A failed poll is retried and yields no
    /// item; it is logged at warn once.
    ///
    /// # Cancel safety
    ///
    /// A dropped stream stops polling. An item is lost only if the future that waits for it is ready and
    /// dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use futures_util::StreamExt as _;
    /// use polylock_coordination::Election;
    /// use polylock_core::memory::Memory;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
    /// let store = Memory::new();
    /// let here = Election::new(Arc::new(store.client()), "scheduler")?;
    /// let mut leaders = Election::new(Arc::new(store.client()), "scheduler")?.observe();
    /// assert_eq!(leaders.next().await, Some(None));
    ///
    /// let leadership = here.campaign().await?;
    /// let leader = leaders.next().await.flatten().expect("somebody leads");
    /// assert_eq!(leader.token, Some(leadership.fencing_token()));
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> impl Stream<Item = Option<Leader>> + Send + Unpin + use<> {
        Observation::new(Arc::clone(&self.locks), self.request.key().clone())
    }

    fn emit(&self, event: &CoordinationEvent<'_>) {
        emit(self.observer.as_ref(), event);
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name())
            .field("leads", &self.role.has_term())
            .finish_non_exhaustive()
    }
}
