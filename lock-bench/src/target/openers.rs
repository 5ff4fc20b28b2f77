use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use super::polylocks::Polylocks;
use super::{Bare, Opened, Probe};
use crate::subject::{Failure, INVALID};

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

/// How a process is started that calls [`serve`](crate::worker::serve).
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
}

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
        self.worker = Some(Worker {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
        });
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
