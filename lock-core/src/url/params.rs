use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::percent::decode;
use crate::credentials::{Login, LoginSource, PasswordFile};
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::suggest::{did_you_mean, list, nearest};

/// A parameter of a URL, percent-decoded.
#[derive(Clone)]
pub(super) struct Param {
    pub(super) name: String,
    value: Secret,
    /// Whether it stands behind a secret: an `&` that is not escaped makes the rest of the secret
    /// look like this parameter, so neither name nor value are ever shown.
    behind_secret: bool,
    /// Whether it stands behind what may be a secret, as the misspelt name of one is: its value is
    /// never shown.
    behind_hidden: bool,
}

impl Param {
    pub(super) fn says(&self, other: &Self) -> bool {
        self.name == other.name && self.value == other.value
    }

    fn is_secret(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        !name.ends_with("file")
            && (SECRETS.iter().any(|secret| name.contains(secret)) || name.ends_with("key"))
    }

    /// Whether the value of a known parameter may be quoted.
    fn is_quotable(&self) -> bool {
        !self.behind_secret && !self.behind_hidden && !self.is_secret()
    }
}

/// A parameter with one of these in its name is secret, unless it names a file.
const SECRETS: &[&str] = &["auth", "credential", "pass", "pwd", "secret", "token"];

/// Whether the value of a parameter of this name is shown.
pub(super) fn is_public(name: &str) -> bool {
    PUBLIC.binary_search(&name).is_ok()
}

/// The parameters of the layers and of the backends of this workspace that hold no secret. All
/// others may be a password whose name is misspelt.
const PUBLIC: &[&str] = &[
    "access",
    "application-name",
    "busy-timeout",
    "compat",
    "connect-timeout",
    "connections",
    "create-dir",
    "create-table",
    "database",
    "expiry",
    "handover-time",
    "local-queue",
    "max-handovers",
    "max-waiters",
    "min-replica-acks",
    "mode",
    "namespace",
    "node-timeout",
    "notify",
    "password-file",
    "pooler",
    "push",
    "rejoin-delay",
    "replica-ack-timeout",
    "resp",
    "retention",
    "schema",
    "sentinel-password-file",
    "sentinel-username",
    "session-timeout",
    "strict",
    "table",
    "timeout",
    "tls",
    "tls-ca-file",
    "tls-cert-file",
    "tls-key-file",
    "username",
];

/// Reads `name=value&name=value`.
pub(super) fn parse(query: &str) -> Result<Vec<Param>> {
    let mut params: Vec<Param> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Error::config(
                "a parameter is written name=value; an & in a value is written %26, and a ? that \
                 begins no parameters %3F",
            ));
        };
        let (name, value) = (decode(name)?, decode(value)?);
        let last = params.last();
        let behind_secret = last.is_some_and(|last| last.behind_secret || last.is_secret());
        let behind_hidden = last.is_some_and(|last| last.behind_hidden || !is_public(&last.name));
        if let Some(first) = params.iter().find(|param| param.name == name) {
            return Err(Error::config(
                match first.behind_hidden && !is_public(&name) {
                    true => "a parameter is given twice".to_owned(),
                    false => format!("parameter {name:?} is given twice"),
                },
            ));
        }
        params.push(Param {
            name,
            value: value.into(),
            behind_secret,
            behind_hidden,
        });
    }
    Ok(params)
}

/// Writes the parameters as in a URL, up to the first that may be a secret.
pub(super) fn show(params: &[Param], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut separator = '?';
    for param in params {
        write!(f, "{separator}{}=", utf8_percent_encode(&param.name, VALUE))?;
        if !is_public(&param.name) {
            return f.write_str("***");
        }
        write!(f, "{}", utf8_percent_encode(param.value.expose(), VALUE))?;
        separator = '&';
    }
    Ok(())
}

const VALUE: &AsciiSet = &CONTROLS
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'=')
    .add(b'@')
    .add(b' ');

/// Reads the parameters of a URL by name and type.
///
/// Each method returns `None` for a missing parameter. Readers end with [`finish`](Params::finish),
/// so that a misspelt parameter is an error and not ignored. A URL in which a parameter is given
/// twice is refused by [`LockUrl::parse`](crate::LockUrl::parse).
///
/// # Errors
///
/// All are of the kind [`InvalidConfig`](crate::ErrorKind::InvalidConfig) and name the parameter.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::LockUrl;
///
/// let url = LockUrl::parse("sqlite:locks.db?busy-timeout=5s&mood=lease")?;
/// let mut params = url.params();
/// assert_eq!(params.duration("busy-timeout")?, Some(Duration::from_secs(5)));
/// assert_eq!(params.one_of("mode", &["lease"])?, None);
/// let error = params.finish().unwrap_err();
/// assert_eq!(
///     error.message(),
///     r#"unknown parameter "mood", did you mean "mode"? (known: busy-timeout, mode)"#
/// );
/// # Ok::<(), polylock_core::Error>(())
/// ```
#[must_use = "an unknown parameter is reported by `finish`"]
pub struct Params<'a> {
    left: Vec<&'a Param>,
    known: Vec<&'static str>,
}

impl<'a> Params<'a> {
    pub(super) fn new(params: &'a [Param], taken: &[&'static str]) -> Self {
        Self {
            left: params.iter().collect(),
            known: taken.to_vec(),
        }
    }

    fn take(&mut self, name: &'static str) -> Option<&'a Param> {
        self.known.push(name);
        let at = self.left.iter().position(|param| param.name == name)?;
        Some(self.left.remove(at))
    }

    /// Reads a value by `parse`, which says what it must be otherwise.
    fn read<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&Param, &'a str) -> Result<T, String>,
    ) -> Result<Option<T>> {
        let Some(param) = self.take(name) else {
            return Ok(None);
        };
        let value = parse(param, param.value.expose());
        value.map(Some).map_err(|expected| wrong(param, &expected))
    }

    /// Reads a text, which may be empty.
    pub fn string(&mut self, name: &'static str) -> Option<&'a str> {
        self.take(name).map(|param| param.value.expose())
    }

    /// Reads a duration with its unit, such as `500ms`, `30s` or `1m 30s`.
    ///
    /// # Errors
    ///
    /// Any value that is no duration, such as a number without a unit.
    pub fn duration(&mut self, name: &'static str) -> Result<Option<Duration>> {
        self.read(name, |param, value| {
            let value = value.trim();
            if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
                let example = if param.is_quotable() { value } else { "30" };
                return Err(format!(
                    "a duration with a unit, write for example {name}={example}s"
                ));
            }
            let duration = humantime::parse_duration(value);
            duration.map_err(|_| "a duration such as 500ms, 30s or 5m".to_owned())
        })
    }

    /// Reads `on` or `true`, `off` or `false`.
    ///
    /// # Errors
    ///
    /// Any other value.
    pub fn bool(&mut self, name: &'static str) -> Result<Option<bool>> {
        self.read(name, |_, value| match value {
            "on" | "true" => Ok(true),
            "off" | "false" => Ok(false),
            _ => Err("on or off".to_owned()),
        })
    }

    /// Reads a whole number within `range`.
    ///
    /// # Errors
    ///
    /// Any other value, or a number out of range.
    pub fn integer<N>(&mut self, name: &'static str, range: RangeInclusive<N>) -> Result<Option<N>>
    where
        N: FromStr + PartialOrd + fmt::Display,
    {
        self.read(name, |_, value| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            let expected = || format!("a whole number from {} to {}", range.start(), range.end());
            number.ok_or_else(expected)
        })
    }

    /// Reads one of the given words.
    ///
    /// # Errors
    ///
    /// Any other word; the error names the nearest match.
    pub fn one_of<'w>(&mut self, name: &'static str, words: &[&'w str]) -> Result<Option<&'w str>> {
        self.read(name, |_, value| {
            let mut known = words.iter().copied();
            known.find(|word| *word == value).ok_or_else(|| {
                let hint = did_you_mean(nearest(value, words.iter().copied()));
                format!("one of {}{hint}", list(words.iter().copied()))
            })
        })
    }

    /// Makes a login of a user, a password and the parameter that names a file with the password.
    ///
    /// # Errors
    ///
    /// A password and a file with one.
    pub fn login(
        &mut self,
        username: Option<&str>,
        password: Option<&str>,
        file: &'static str,
    ) -> Result<LoginSource> {
        let username = username.map(str::to_owned);
        let Some(path) = self.string(file) else {
            let password = password.map(|password| password.to_owned().into());
            return Ok(Login { username, password }.into());
        };
        if password.is_some() {
            return Err(Error::config(format!(
                "there is a password, and {file} names a file with one: leave one of them out"
            )));
        }
        let path = path.into();
        Ok(LoginSource::credentials(PasswordFile { username, path }))
    }

    /// Reads `tls`, `tls-ca-file`, `tls-cert-file` and `tls-key-file`; `None` without TLS.
    ///
    /// `is_default` says whether TLS is on unless it is turned off.
    ///
    /// # Errors
    ///
    /// A certificate without its key, a key without its certificate, or files without TLS.
    pub fn tls(&mut self, is_default: bool) -> Result<Option<TlsFiles>> {
        let mut file = |name| self.string(name).map(PathBuf::from);
        let ca = file("tls-ca-file");
        let identity = match (file("tls-cert-file"), file("tls-key-file")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return Err(Error::config(
                    "tls-cert-file and tls-key-file belong together",
                ));
            }
        };
        if self.bool("tls")?.unwrap_or(is_default) {
            return Ok(Some(TlsFiles { ca, identity }));
        }
        if ca.is_some() || identity.is_some() {
            return Err(Error::config(
                "there are TLS files without TLS, write tls=on",
            ));
        }
        Ok(None)
    }

    /// Ends the reading.
    ///
    /// # Errors
    ///
    /// The first unknown parameter is an error, which names the nearest match and all known ones,
    /// those of the layers included.
    pub fn finish(self) -> Result<()> {
        let Some(param) = self.left.first() else {
            return Ok(());
        };
        let known = list(self.known.iter().copied());
        Err(Error::config(if param.behind_secret {
            format!("unknown parameter behind a secret, which has & as %26 (known: {known})")
        } else {
            let hint = did_you_mean(nearest(&param.name, self.known.iter().copied()));
            format!("unknown parameter {:?}{hint} (known: {known})", param.name)
        }))
    }

    /// Ends the reading and leaves the rest, with these names, to another reader.
    pub(crate) fn leave(self) -> Vec<&'static str> {
        self.known
    }
}

/// Which PEM files TLS takes its certificates from.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TlsFiles {
    /// Certificates of authorities; `None` for those of the system, where the backend reads them.
    pub ca: Option<PathBuf>,
    /// The certificate of this client with its chain, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

fn wrong(param: &Param, expected: &str) -> Error {
    let (name, value) = (&param.name, param.value.expose());
    Error::config(match param.is_quotable() {
        true => format!("parameter {name:?} is {value:?} and must be {expected}"),
        false => format!("parameter {name:?} must be {expected}"),
    })
}

/// Shows names that were asked for, and nothing of the URL.
impl fmt::Debug for Params<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Params")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}
