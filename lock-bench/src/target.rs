//! What is measured: names, URLs, and what opens them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock::{DistributedLock, LockUrl};

use crate::measure::{Recorded, Window};
use crate::report::TargetKind;
use crate::servers;
use crate::subject::{Failure, INVALID, Locks, Subject};
use crate::workloads::{Job, Taken, contend, take};

/// Opens targets of some schemes.
#[async_trait]
pub trait Opener: fmt::Debug + Send + Sync + 'static {
    /// The schemes, in lower case.
    fn schemes(&self) -> Vec<&'static str>;

    /// Connects what is measured, and no more: every contender that is a process calls it.
    ///
    /// # Errors
    ///
    /// If the URL is wrong, or nobody answers there. The message has no secrets in it.
    ///
    /// # Cancel safety
    ///
    /// A dropped future closes what it opened.
    async fn open(&self, url: &str) -> Result<Opened, Failure>;

    /// Connects what asks the server; none by default.
    ///
    /// # Errors
    ///
    /// As those of [`open`](Self::open).
    ///
    /// # Cancel safety
    ///
    /// A dropped future closes what it opened.
    async fn probe(&self, url: &str) -> Result<Option<Arc<dyn Probe>>, Failure> {
        let _not_asked = url;
        Ok(None)
    }

    /// Connects what is measured beside it, as the limit; none by default. `run` is the number of
    /// the run, and all its processes call it with the same one.
    ///
    /// # Errors
    ///
    /// As those of [`open`](Self::open), and of the kind `refused` if the server does not let this
    /// user have it: then it is left out.
    ///
    /// # Cancel safety
    ///
    /// A dropped future closes what it opened. [`clear`](Self::clear) removes what it made.
    async fn bare(&self, url: &str, run: u64) -> Result<Option<Bare>, Failure> {
        let _has_none = (url, run);
        Ok(None)
    }

    /// Removes what [`bare`](Self::bare) has made on the server for this run; nothing by default.
    ///
    /// # Errors
    ///
    /// If something stays. The message says what.
    ///
    /// # Cancel safety
    ///
    /// It may be removed or not.
    async fn clear(&self, url: &str, run: u64) -> Result<(), Failure> {
        let _made_nothing = (url, run);
        Ok(())
    }

    /// Faults that a doctor finds there, one sentence each; none by default.
    ///
    /// # Errors
    ///
    /// If it cannot be examined.
    ///
    /// # Cancel safety
    ///
    /// Nothing stays.
    async fn findings(&self, url: &str) -> Result<Vec<String>, Failure> {
        let _not_looked_at = url;
        Ok(Vec::new())
    }

    /// Shows where a target is, without secrets; by default its scheme alone.
    fn shown(&self, url: &str) -> String {
        format!("{}:***", scheme_of(url))
    }
}

/// All that can be opened, and how contenders that are processes are started.
#[derive(Clone, Debug)]
pub struct Openers {
    openers: Vec<Arc<dyn Opener>>,
    worker: Option<Worker>,
}

/// The program and arguments of a process that calls [`serve`](crate::worker::serve).
type Worker = (PathBuf, Vec<OsString>);

impl Openers {
    /// All backends of polylock whose features are on. Contenders that are processes run the
    /// program that runs now, with the argument [`ARGUMENT`](crate::worker::ARGUMENT).
    #[must_use]
    pub fn compiled_in() -> Self {
        Self {
            openers: vec![Arc::new(Polylocks)],
            worker: None,
        }
    }

    /// Adds others, which take precedence.
    #[must_use]
    pub fn with(mut self, opener: impl Opener) -> Self {
        self.openers.insert(0, Arc::new(opener));
        self
    }

    /// Starts contenders by another program, which has the same openers.
    #[must_use]
    pub fn with_worker(
        mut self,
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        let args = args.into_iter().map(Into::into);
        self.worker = Some((program.into(), args.collect()));
        self
    }

    /// Names a target. Nothing is opened before the run.
    ///
    /// # Errors
    ///
    /// If nothing opens URLs of this scheme.
    pub fn target(
        &self,
        name: impl Into<String>,
        url: impl Into<String>,
    ) -> Result<Target, Failure> {
        let url = url.into();
        let opener = self.opener(&url)?;
        Ok(Target {
            name: name.into(),
            url,
            opener: Arc::clone(opener),
            worker: self.worker.clone(),
        })
    }

    pub(crate) fn opener(&self, url: &str) -> Result<&Arc<dyn Opener>, Failure> {
        let scheme = scheme_of(url);
        let mut openers = self.openers.iter();
        openers
            .find(|opener| opener.schemes().contains(&scheme.as_str()))
            .ok_or_else(|| {
                let known: Vec<_> = self.openers.iter().flat_map(|o| o.schemes()).collect();
                let known = known.join(", ");
                Failure::new(
                    INVALID,
                    format!("unknown scheme {scheme:?} (known: {known})"),
                )
            })
    }
}

/// What is to be measured, and what it is called in the report.
#[derive(Clone)]
pub struct Target {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) opener: Arc<dyn Opener>,
    pub(crate) worker: Option<Worker>,
}

impl Target {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Without the URL, which may have secrets in it.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("url", &self.opener.shown(&self.url))
            .finish_non_exhaustive()
    }
}

/// What stands before the first colon; a text without one shows nothing of itself.
fn scheme_of(url: &str) -> String {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.to_ascii_lowercase()
}

/// Every URL of polylock, with the layers that a user gets.
#[derive(Debug)]
struct Polylocks;

#[async_trait]
impl Opener for Polylocks {
    fn schemes(&self) -> Vec<&'static str> {
        polylock::compiled_in().schemes().collect()
    }

    async fn open(&self, url: &str) -> Result<Opened, Failure> {
        let registry = polylock::compiled_in();
        let parsed = registry.backend_url(url)?;
        let locks = registry.connect(url).await?;
        let backend = parsed.scheme().to_owned();
        let mut opened = Opened::new(TargetKind::Lock { backend }, Runner::of_locks(locks));
        if parsed.scheme() == "memory" {
            opened = opened.within_one_process();
        }
        Ok(opened)
    }

    async fn probe(&self, url: &str) -> Result<Option<Arc<dyn Probe>>, Failure> {
        servers::probe(&of_backend(url)?).await
    }

    async fn bare(&self, url: &str, run: u64) -> Result<Option<Bare>, Failure> {
        servers::bare(&of_backend(url)?, run).await
    }

    async fn clear(&self, url: &str, run: u64) -> Result<(), Failure> {
        servers::clear(&of_backend(url)?, run).await
    }

    async fn findings(&self, url: &str) -> Result<Vec<String>, Failure> {
        let found = polylock::compiled_in().check_health(url).await?;
        let faults = found.iter().filter(|finding| finding.is_fault());
        Ok(faults.map(ToString::to_string).collect())
    }

    fn shown(&self, url: &str) -> String {
        LockUrl::parse(url).map_or_else(|_| "(not a URL)".to_owned(), |url| url.to_string())
    }
}

fn of_backend(url: &str) -> Result<LockUrl, Failure> {
    Ok(polylock::compiled_in().backend_url(url)?)
}

/// A target to which there is a connection.
#[derive(Clone, Debug)]
pub struct Opened {
    pub(crate) kind: TargetKind,
    pub(crate) runner: Runner,
    pub(crate) is_of_one_process: bool,
}

impl Opened {
    /// What is measured by `runner`.
    #[must_use]
    pub fn new(kind: TargetKind, runner: Runner) -> Self {
        Self {
            kind,
            runner,
            is_of_one_process: false,
        }
    }

    /// Says that other processes do not see its locks.
    #[must_use]
    pub fn within_one_process(mut self) -> Self {
        self.is_of_one_process = true;
        self
    }
}

/// The least commands that exclude, by the same client on the same server.
#[derive(Clone, Debug)]
pub struct Bare {
    pub(crate) commands: String,
    pub(crate) runner: Runner,
    pub(crate) waits: bool,
}

impl Bare {
    /// What sends `commands`, such as `SET NX PX, compare and delete`. It is measured where nobody
    /// waits.
    #[must_use]
    pub fn new(commands: impl Into<String>, runner: Runner) -> Self {
        Self {
            commands: commands.into(),
            runner,
            waits: false,
        }
    }

    /// Says that the server lets it wait without asking again and again, so that it is a limit
    /// under contention too.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.waits = true;
        self
    }
}

/// Asks a server, on a connection like that of the locks.
#[async_trait]
pub trait Probe: fmt::Debug + Send + Sync {
    /// Makes one round trip with the smallest command that there is.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    ///
    /// # Cancel safety
    ///
    /// The answer is lost, and nothing else.
    async fn ping(&self) -> Result<(), Failure>;

    /// Commands that the server has served since it was started, if it counts them. Each answer is
    /// larger by this question too.
    ///
    /// # Errors
    ///
    /// If it does not tell.
    ///
    /// # Cancel safety
    ///
    /// The answer is lost, and nothing else.
    async fn commands(&self) -> Result<Option<u64>, Failure>;

    /// Versions and durability settings, by name and without secrets.
    ///
    /// # Errors
    ///
    /// If it does not tell any of them.
    ///
    /// # Cancel safety
    ///
    /// The answer is lost, and nothing else.
    async fn facts(&self) -> Result<BTreeMap<String, String>, Failure>;
}

/// A subject of any type, with the loops of all workloads around it.
#[derive(Clone)]
pub struct Runner {
    contend: Arc<dyn Fn(Job, Window) -> Boxed<Recorded> + Send + Sync>,
    take: Arc<dyn Fn(String, Duration, Duration) -> Boxed<Option<Taken>> + Send + Sync>,
    locks: Option<Arc<dyn DistributedLock>>,
}

type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Puts the loops of all workloads around a subject.
pub fn runner(subject: impl Subject) -> Runner {
    let taker = subject.clone();
    Runner {
        contend: Arc::new(move |job, window| Box::pin(contend(subject.clone(), job, window))),
        take: Arc::new(move |name, ttl, wait| Box::pin(take(taker.clone(), name, ttl, wait))),
        locks: None,
    }
}

impl Runner {
    /// Measures locks of this project that no URL leads to, and their layers too.
    #[must_use]
    pub fn of_locks(locks: Arc<dyn DistributedLock>) -> Self {
        Self {
            locks: Some(Arc::clone(&locks)),
            ..runner(Locks(locks))
        }
    }

    pub(crate) async fn contend(&self, job: Job, window: Window) -> Result<Recorded, Failure> {
        (self.contend)(job, window).await
    }

    pub(crate) async fn take(
        &self,
        name: String,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Option<Taken>, Failure> {
        (self.take)(name, ttl, wait).await
    }

    /// Ends what goes on behind locks, as far as it ends soon.
    pub(crate) async fn close(&self) {
        if let Some(locks) = &self.locks {
            let _all_ended = locks.shutdown(CLOSES_WITHIN).await;
        }
    }

    pub(crate) fn locks(&self) -> Option<&Arc<dyn DistributedLock>> {
        self.locks.as_ref()
    }
}

const CLOSES_WITHIN: Duration = Duration::from_secs(1);

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}
