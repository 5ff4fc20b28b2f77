use polylock_core::{Error, LockUrl, Result};

use super::EtcdConfig;

/// The schemes, the canonical one first.
pub(crate) const SCHEMES: &[&str] = &["etcd", "etcds"];

impl EtcdConfig {
    /// Reads a URL and its parameters: `etcd://[user:password@]host[:2379],.../prefix`; `etcds://` is
    /// the same with TLS.
    ///
    /// The hosts are servers of one cluster. The path without its first slash is the prefix of the keys;
    /// without a path, or with `/` alone, the prefix is `locks`.
    ///
    /// | parameter | default | meaning |
    /// |---|---|---|
    /// | `connect-timeout=DURATION` | `10s` | see [`with_connect_timeout`](Self::with_connect_timeout) |
    /// | `password-file=PATH` | none | a file with the password, read for each connection: see [`with_credentials`](Self::with_credentials) |
    /// | `strict=on` or `off` | `off` | see [`with_strict_checks`](Self::with_strict_checks) |
    /// | `timeout=DURATION` | `10s` | see [`with_timeout`](Self::with_timeout) |
    /// | `tls=on` or `off` | `off`, with `etcds` `on` | see [`with_tls`](Self::with_tls) |
    /// | `tls-ca-file=PATH` | the system's | see [`with_tls_ca`](Self::with_tls_ca) |
    /// | `tls-cert-file=PATH` | none | see [`with_tls_identity`](Self::with_tls_identity) |
    /// | `tls-key-file=PATH` | none | see [`with_tls_identity`](Self::with_tls_identity) |
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) names what is wrong with the URL.
    pub fn from_url(url: &LockUrl) -> Result<Self> {
        let mut params = url.params();
        let hosts = url.expect_hosts()?.iter();
        let mut config = Self::new(hosts.map(|host| (host.name.as_str(), host.port_or(PORT))));
        // A slash at the end of a URL is often an accident, and must not make other locks of it.
        let path = url.path();
        let prefix = path.strip_prefix('/').unwrap_or(path);
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() {
            config = config.with_prefix(prefix)?;
        }
        let (username, password) = (url.username(), url.password());
        let login = params.login(username, password, "password-file")?;
        config = match (username, password, login.known()) {
            (None, None, Some(_)) => config,
            (Some(_), Some(_), _) | (Some(_), None, None) => config.with_login_source(login),
            (Some(_), None, Some(_)) => {
                return Err(Error::config("there is a user without a password"));
            }
            (None, ..) => return Err(Error::config("there is a password without a user")),
        };
        config.tls = params.tls(url.scheme() == "etcds")?;
        if let Some(timeout) = params.duration("connect-timeout")? {
            config = config.with_connect_timeout(timeout)?;
        }
        if let Some(timeout) = params.duration("timeout")? {
            config = config.with_timeout(timeout)?;
        }
        config.strict = params.bool("strict")? == Some(true);
        params.finish()?;
        Ok(config)
    }
}

pub(crate) const PORT: u16 = 2379;
