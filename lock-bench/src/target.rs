//! What is measured: names, URLs, and connections.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use polylock::LockUrl;
use secrecy::{ExposeSecret as _, SecretString};

use crate::connection::Boxed;
pub use crate::connection::Opened;
use crate::probe::Probe;
use crate::servers;
use crate::subject::{Failure, INVALID};

/// What can be measured, and the program that contenders are which are processes.
#[derive(Clone, Default)]
pub struct Openers {
    peers: Vec<(&'static str, OpenPeer)>,
    worker: Option<PathBuf>,
}

type OpenPeer = Arc<dyn Fn(String) -> Boxed<Opened> + Send + Sync>;

impl Openers {
    /// All backends of polylock whose features are on. Contenders that are processes run the
    /// program that runs now, with the argument [`ARGUMENT`](crate::worker::ARGUMENT).
    #[must_use]
    pub fn compiled_in() -> Self {
        Self::default()
    }

    /// Adds locks of another library under a scheme of their own, in lower case. Behind a `+`, as
    /// in `library+redis://cache`, stands the URL of their server, which `open` gets; without one
    /// it gets the whole URL. Its messages must not have secrets in them.
    #[must_use]
    pub fn with_peer<F>(
        mut self,
        scheme: &'static str,
        open: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Opened, Failure>> + Send + 'static,
    {
        let open: OpenPeer = Arc::new(move |url| Box::pin(open(url)));
        self.peers.push((scheme, open));
        self
    }

    /// Starts contenders by another program, which has the same openers.
    #[must_use]
    pub fn with_worker(mut self, program: impl Into<PathBuf>) -> Self {
        self.worker = Some(program.into());
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
        let url: String = url.into();
        // A text without a colon shows nothing of itself.
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        let scheme = scheme.to_ascii_lowercase();
        let peer = self.peers.iter().find(|(known, _)| *known == scheme);
        let own: Vec<_> = polylock::compiled_in().schemes().collect();
        if peer.is_none() && !own.contains(&&*scheme) {
            let peers = self.peers.iter().map(|(scheme, _)| *scheme);
            let known: Vec<_> = own.into_iter().chain(peers).collect();
            let text = format!("unknown scheme {scheme:?} (known: {})", known.join(", "));
            return Err(Failure::new(INVALID, text));
        }
        Ok(Target {
            name: name.into(),
            url: url.into(),
            peer: peer.map(|(_, open)| Arc::clone(open)),
            worker: self.worker.clone(),
        })
    }
}

impl fmt::Debug for Openers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Openers").finish_non_exhaustive()
    }
}

/// What is to be measured, and what it is called in the report.
#[derive(Clone)]
pub struct Target {
    pub(crate) name: String,
    pub(crate) url: SecretString,
    peer: Option<OpenPeer>,
    /// The program of contenders, if it is another one.
    pub(crate) worker: Option<PathBuf>,
}

impl Target {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL with its password.
    pub(crate) fn url(&self) -> &str {
        self.url.expose_secret()
    }

    /// Connects what is measured, and no more: every contender that is a process calls it.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        let server = self.server()?;
        if let Some(open) = &self.peer {
            let url = self.url();
            let url = url.split_once('+').map_or(url, |(_, url)| url);
            return open(url.to_owned()).await;
        }
        let locks = polylock::compiled_in().connect(self.url()).await?;
        let backend = server.map(|url| url.scheme().to_owned());
        Ok(Opened::locks(backend.unwrap_or_default(), locks))
    }

    /// Connects what asks the server.
    pub(crate) async fn probe(&self) -> Result<Option<Arc<dyn Probe>>, Failure> {
        match self.server()? {
            Some(server) => servers::probe(&server).await,
            None => Ok(None),
        }
    }

    /// Connects the bare commands, the limit of these locks. All processes of a run call it with
    /// the same number. Fails with the kind `refused` if this user may not have them.
    pub(crate) async fn bare(&self, run: u64) -> Result<Option<Opened>, Failure> {
        match self.server()? {
            Some(server) if self.peer.is_none() => servers::bare(&server, run, &self.name).await,
            _ => Ok(None),
        }
    }

    /// Removes what [`bare`](Self::bare) made on the server. The failure says what stays.
    pub(crate) async fn clear(&self, run: u64) -> Result<(), Failure> {
        match self.server()? {
            Some(server) => servers::clear(&server, run).await,
            None => Ok(()),
        }
    }

    /// Faults that a health check finds, one sentence each.
    pub(crate) async fn findings(&self) -> Result<Vec<String>, Failure> {
        if self.peer.is_some() {
            return Ok(Vec::new());
        }
        let found = polylock::compiled_in().check_health(self.url()).await?;
        let faults = found.iter().filter(|finding| finding.is_fault());
        Ok(faults.map(ToString::to_string).collect())
    }

    /// The URL without secrets. One of a library that has no hosts may have them anywhere.
    pub(crate) fn shown(&self) -> String {
        match LockUrl::parse(self.url()) {
            Ok(url) if self.peer.is_none() || !url.hosts().is_empty() => url.to_string(),
            _ => "(not a URL)".to_owned(),
        }
    }

    /// The URL of the server without the parameters of layers; none for a library without one.
    fn server(&self) -> Result<Option<LockUrl>, Failure> {
        if self.peer.is_none() {
            return Ok(Some(polylock::compiled_in().backend_url(self.url())?));
        }
        let Some((_, server)) = self.url().split_once('+') else {
            return Ok(None);
        };
        // A library's error for a wrong URL may contain the password, and some libraries panic.
        let server = LockUrl::parse(server)?;
        server.expect_hosts()?;
        Ok(Some(server))
    }
}

/// Without the URL, which may have secrets in it.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("url", &self.shown())
            .finish_non_exhaustive()
    }
}
