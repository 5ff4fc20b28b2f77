use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::health::HealthCheck;
use crate::lock::DistributedLock;
use crate::url::LockUrl;

/// One kind of lock service, opened by URL.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// The URL schemes that it serves, in lower case, the canonical one first.
    fn schemes(&self) -> &'static [&'static str];

    /// The default port of a scheme; `None` if its URLs name no host, such as that of a file.
    ///
    /// For a host and a port without a scheme, [`Registry::parse_url`](crate::Registry::parse_url)
    /// suggests the scheme with that port; of several the first of [`schemes`](Backend::schemes).
    fn default_port(&self, scheme: &str) -> Option<u16>;

    /// The default namespace; empty for none.
    ///
    /// A backend whose server also stores other data has one, so that locks do not collide with them.
    fn default_namespace(&self) -> &'static str;

    /// Reads a URL as [`connect`](Backend::connect) does, without a connection. Users call
    /// [`Registry::check_url`](crate::Registry::check_url).
    ///
    /// Without an implementation nothing is checked.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if the URL is wrong.
    fn check_url(&self, url: &LockUrl) -> Result<()> {
        let _not_checked = url;
        Ok(())
    }

    /// Connects to the service. Users call [`Registry::connect`](crate::Registry::connect).
    ///
    /// # Errors
    ///
    /// - [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if the URL is wrong, before anything is
    ///   sent.
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) if the service cannot be reached.
    /// - [`Denied`](crate::ErrorKind::Denied) if it refuses the credentials.
    ///
    /// # Cancel safety
    ///
    /// No lock is touched. A dropped future closes what it opened.
    ///
    /// # For implementors
    ///
    /// Read the parameters by [`LockUrl::params`] and end with
    /// [`Params::finish`](crate::Params::finish), so that a misspelt one is an error; those of the
    /// layers are taken out before. [`LockUrl::expect_hosts`], [`LockUrl::expect_host`] and
    /// [`LockUrl::expect_file`] check the rest. An error shows the URL by its `Display` or not at
    /// all.
    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>>;

    /// Checks the service for known risks of losing locks, and returns the result of every check, also
    /// if nothing is wrong. Users call [`Registry::check_health`](crate::Registry::check_health).
    ///
    /// Without an implementation there are no checks.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Backend::connect), which say that nothing could be checked. A bad
    /// result is not an error, also where [`connect`](Backend::connect) would refuse it.
    ///
    /// # Cancel safety
    ///
    /// A dropped future closes what it opened. Nothing stays at the service but what
    /// [`connect`](Backend::connect) leaves there.
    async fn check_health(&self, url: &LockUrl) -> Result<Vec<HealthCheck>> {
        let _not_checked = url;
        Ok(Vec::new())
    }
}
