use std::time::Duration;

use polylock_core::{Error, LockUrl, Params, Result};

use super::{Compat, NodeAccess, ZooKeeperConfig};

/// The schemes, the canonical one first.
pub(crate) const SCHEMES: &[&str] = &["zk", "zookeeper"];

impl ZooKeeperConfig {
    /// Reads a URL and its parameters: `zk://[user:password@]host[:2181],.../root`; `zookeeper://` is
    /// the same.
    ///
    /// The hosts are servers of one ensemble. The path is the directory of the locks; without a path, or
    /// with `/` alone, it is `/locks`.
    ///
    /// | parameter | default | meaning |
    /// |---|---|---|
    /// | `access=creator`, `creator-and-readers` or `everybody` | `creator` with a login or a certificate, else `everybody` | see [`NodeAccess`] |
    /// | `auth=digest` or `sasl` | `digest` | what user and password are for: [`with_digest_login`](Self::with_digest_login), [`with_sasl_login`](Self::with_sasl_login) |
    /// | `compat=curator`, `curator-rw` or `kazoo` | `curator` | see [`Compat`] |
    /// | `connect-timeout=DURATION` | `15s` | see [`with_connect_timeout`](Self::with_connect_timeout) |
    /// | `password-file=PATH` | none | with `auth=sasl`, a file with the password, read for each session: see [`with_sasl_credentials`](Self::with_sasl_credentials) |
    /// | `session-timeout=DURATION` | `20s` | see [`with_session_timeout`](Self::with_session_timeout) |
    /// | `strict=on` or `off` | `off` | see [`with_strict_checks`](Self::with_strict_checks) |
    /// | `timeout=DURATION` | `10s` | see [`with_timeout`](Self::with_timeout) |
    /// | `tls=on` or `off` | `off` | see [`with_tls`](Self::with_tls) |
    /// | `tls-ca-file=PATH` | none, needed for TLS | see [`with_tls_ca`](Self::with_tls_ca) |
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
        if !matches!(url.path(), "" | "/") {
            config = config.with_root(url.path())?;
        }
        config = login(url, &mut params, config)?;
        config.tls = params.tls(false)?;
        let timeouts = [
            ("connect-timeout", Self::with_connect_timeout as SetTimeout),
            ("session-timeout", Self::with_session_timeout),
            ("timeout", Self::with_timeout),
        ];
        for (name, set) in timeouts {
            if let Some(timeout) = params.duration(name)? {
                config = set(config, timeout)?;
            }
        }
        let access = ["creator", "creator-and-readers", "everybody"];
        config.access = match params.one_of("access", &access)? {
            Some("creator") => Some(NodeAccess::Creator),
            Some("creator-and-readers") => Some(NodeAccess::CreatorAndReaders),
            other => other.map(|_| NodeAccess::Everybody),
        };
        config.compat = match params.one_of("compat", &["curator", "curator-rw", "kazoo"])? {
            Some("curator-rw") => Compat::CuratorReadWrite,
            Some("kazoo") => Compat::Kazoo,
            _ => Compat::Curator,
        };
        config.strict = params.bool("strict")? == Some(true);
        params.finish()?;
        Ok(config)
    }
}

type SetTimeout = fn(ZooKeeperConfig, Duration) -> Result<ZooKeeperConfig>;

fn login(
    url: &LockUrl,
    params: &mut Params<'_>,
    config: ZooKeeperConfig,
) -> Result<ZooKeeperConfig> {
    let auth = params.one_of("auth", &["digest", "sasl"])?;
    let (username, password) = (url.username(), url.password());
    let file = params.login(username, password, "password-file")?;
    match (username, password, auth) {
        (Some(username), Some(password), Some("sasl")) => {
            config.with_sasl_login(username, password)
        }
        (Some(username), Some(password), _) => config.with_digest_login(username, password),
        (Some(_), None, Some("sasl")) if file.known().is_none() => {
            Ok(config.with_sasl_source(file))
        }
        _ if file.known().is_none() => Err(Error::config(
            "password-file is for a user with auth=sasl; another password is another identity for digest",
        )),
        (Some(_), None, _) => Err(Error::config("there is a user without a password")),
        (None, Some(_), _) => Err(Error::config("there is a password without a user")),
        (None, None, Some(auth)) => Err(Error::config(format!(
            "auth={auth} needs a user and a password, write {}://USER:PASSWORD@HOST",
            url.scheme()
        ))),
        (None, None, None) => Ok(config),
    }
}

pub(crate) const PORT: u16 = 2181;
