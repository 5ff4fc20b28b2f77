//! The URL of a lock service, its typed parameters, and the fix for a wrong one.

mod host;
mod params;
mod percent;
mod split;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::error::{Error, Result};
use crate::secret::Secret;

use self::params::Param;

pub use self::host::Host;
pub use self::params::{Params, TlsFiles};
pub(crate) use self::split::{is_scheme, leading_endpoint, split_scheme};

/// The address of a lock service: backend, hosts, login and options.
///
/// # Syntax
///
/// `scheme://user:password@host:port,host:port/path?name=value&name=value`, or
/// `scheme:path?name=value` where there is no host. Everything but the scheme may be left out. An
/// IPv6 address stands in brackets. In user, password, path and parameters, `#` and `@` are always
/// written `%23` and `%40`; `/` and `?` in a user or a password `%2F` and `%3F`, `&` in a value
/// `%26`, and `%` itself `%25`. A `+` is a plus. White space around the URL is dropped.
///
/// # Secrets
///
/// `Debug` and `Display` show `***` for the password and for the first parameter that
/// [`shows`](LockUrl::shows) does not name, and leave out all parameters after it: an unknown name
/// may be a misspelt `password`, and an unescaped `&` may belong to the secret. Errors quote
/// nothing that could be a password. [`password`](LockUrl::password) and the parameters are the
/// only ways to a secret.
///
/// # Examples
///
/// ```
/// use polylock_core::LockUrl;
///
/// let url = LockUrl::parse("redis://app:p%40ss@cache:6379,[::1]/0?namespace=shop")?;
/// assert_eq!(url.scheme(), "redis");
/// assert_eq!(url.hosts()[0].name, "cache");
/// assert_eq!(url.hosts()[1].port_or(6379), 6379);
/// assert_eq!(url.password(), Some("p@ss"));
/// assert_eq!(url.path(), "/0");
/// assert_eq!(url.to_string(), "redis://app:***@cache:6379,[::1]/0?namespace=shop");
/// # Ok::<(), polylock_core::Error>(())
/// ```
#[derive(Clone)]
pub struct LockUrl {
    scheme: String,
    /// Whether two slashes follow the scheme.
    has_authority: bool,
    username: Option<String>,
    password: Option<Secret>,
    hosts: Vec<Host>,
    path: String,
    params: Vec<Param>,
    /// Parameters that are taken out already, as candidates for what a misspelt one should be.
    taken: Vec<&'static str>,
    namespace: String,
}

impl LockUrl {
    /// Takes a URL apart.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) names what is wrong and how to write it: no
    /// scheme, an empty host, a port that is missing or not a number, a parameter that is given twice or
    /// has no value, a character that must be escaped. No message quotes the URL.
    /// [`Registry::parse_url`](crate::Registry::parse_url) suggests a scheme as well.
    pub fn parse(text: &str) -> Result<Self> {
        split::parse(text)
    }

    /// The scheme in lower case, such as `redis`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The hosts in the order they are written; empty if there are none.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The user, percent-decoded; `None` if it is empty, as in `redis://:secret@cache`.
    #[must_use]
    pub fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    /// The password in clear text, percent-decoded: for the driver, and for nothing that prints.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_ref().map(Secret::expose)
    }

    /// The path, percent-decoded: with its leading slash after hosts (`/0`, `/chroot`), and as it
    /// is written in `sqlite:locks.db`; empty if there is none.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether `Debug` and `Display` show the value of a parameter of this name.
    ///
    /// True for the parameters of polylock's layers and backends that hold no secret. The values of all
    /// others are hidden, also those of third-party backends.
    #[must_use]
    pub fn shows(param: &str) -> bool {
        params::is_public(param)
    }

    /// Returns whether a text that was given in place of something else, such as a file name, may contain a
    /// URL or the user, password and host of one. Messages then show `***`.
    ///
    /// True for a text with `://`, or with an `@` or a `?` after a colon.
    #[must_use]
    pub fn may_be_url(text: &str) -> bool {
        let behind_colon = text.split_once(':').map(|(_, rest)| rest);
        text.contains("://") || behind_colon.is_some_and(|rest| rest.contains(['@', '?']))
    }

    /// A reader for the parameters, which reports unknown ones.
    pub fn params(&self) -> Params<'_> {
        Params::new(&self.params, &self.taken)
    }

    /// Whether both name the same locks in the same way, for any user and scheme. A URL without a
    /// host and a path names nothing: each `memory:` is its own store.
    pub(crate) fn names_what(&self, other: &Self) -> bool {
        let says = |param: &Param| other.params.iter().any(|of_other| param.says(of_other));
        let is_named = !self.hosts.is_empty() || !self.path.is_empty();
        is_named
            && self.hosts == other.hosts
            && self.path == other.path
            && self.params.len() == other.params.len()
            && self.params.iter().all(says)
    }

    /// The same without the parameters that were read.
    pub(crate) fn without(&self, taken: Vec<&'static str>) -> Self {
        let mut url = self.clone();
        url.params
            .retain(|param| !taken.contains(&param.name.as_str()));
        url.taken = taken;
        url
    }

    /// The namespace of the locks, which goes before each key with a colon; empty for none, and in a URL
    /// that comes from no [`Registry`](crate::Registry).
    ///
    /// [`Prefix`](crate::layers::Prefix) adds it to the keys: a backend needs it only to describe a
    /// user's permissions.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The same for locks of a namespace.
    pub(crate) fn within(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// The hosts, for a backend that needs at least one.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if there is none.
    pub fn expect_hosts(&self) -> Result<&[Host]> {
        if self.hosts.is_empty() {
            let scheme = &self.scheme;
            let message = match !self.has_authority && self.path.parse::<u16>().is_ok() {
                true => format!("there is no scheme, write SCHEME://{scheme}:{}", self.path),
                false => format!("there is no host, write {scheme}://HOST:PORT"),
            };
            return Err(Error::config(message));
        }
        Ok(&self.hosts)
    }

    /// The host, for a backend that needs exactly one.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if there is none, or more than one.
    pub fn expect_host(&self) -> Result<&Host> {
        match self.expect_hosts()? {
            [host] => Ok(host),
            hosts => Err(Error::config(format!(
                "{} URLs have one host, this one has {}",
                self.scheme,
                hosts.len()
            ))),
        }
    }

    /// The path of a file, for a backend that keeps its locks in one.
    ///
    /// `sqlite:locks.db` is relative to the working directory; `sqlite:/var/lib/locks.db` and
    /// `sqlite:///var/lib/locks.db` are absolute.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if there is no path, if it begins with
    /// `~`, which is not expanded here, if it contains a NUL, or if two slashes made its first part
    /// a host, as in `sqlite://locks.db`.
    pub fn expect_file(&self) -> Result<&Path> {
        let Self { scheme, path, .. } = self;
        if self.has_userinfo() || !self.hosts.is_empty() {
            return Err(Error::config(self.host_of_a_file()));
        }
        if path.is_empty() || path == "/" {
            return Err(Error::config(format!(
                "there is no file, write {scheme}:PATH"
            )));
        }
        if path == "~" || path.starts_with("~/") {
            return Err(Error::config(
                "a ~ is not expanded in a URL, write the home directory",
            ));
        }
        if path.contains('\0') {
            return Err(Error::config("a file name must not contain NUL"));
        }
        Ok(Path::new(path))
    }

    fn has_userinfo(&self) -> bool {
        self.username.is_some() || self.password.is_some()
    }

    fn host_of_a_file(&self) -> String {
        let Self { scheme, path, .. } = self;
        match self.hosts.as_slice() {
            [Host { name, port: None }] if !self.has_userinfo() => format!(
                "two slashes make {name:?} a host, and a file has none; write {scheme}:{name}{}",
                utf8_percent_encode(path, PATH)
            ),
            _ => format!("a file has no user and no host, write {scheme}:PATH"),
        }
    }
}

impl FromStr for LockUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// Shows `***` in place of secrets; what it prints can be parsed again.
impl fmt::Display for LockUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if self.has_authority {
            f.write_str("//")?;
        }
        if let Some(username) = &self.username {
            write!(f, "{}", utf8_percent_encode(username, USER))?;
        }
        if self.password.is_some() {
            f.write_str(":***")?;
        }
        if self.has_userinfo() {
            f.write_str("@")?;
        }
        for (at, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if at == 0 { "" } else { "," })?;
        }
        write!(f, "{}", utf8_percent_encode(&self.path, PATH))?;
        params::show(&self.params, f)
    }
}

impl fmt::Debug for LockUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockUrl({self})")
    }
}

const PATH: &AsciiSet = &CONTROLS.add(b'#').add(b'%').add(b'?').add(b'@');
const USER: &AsciiSet = &PATH.add(b'/').add(b':');
