//! URLs and their parameters, which may have passwords in them.

use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use polylock_core::{LockUrl, Result};
use secrecy::{ExposeSecret, SecretString};
use toml::Spanned;

use super::value::Parameter;

/// The URL of a backend, with its secrets: `Debug` and `Display` show `***` in their place.
///
/// # Examples
///
/// ```
/// use polylock::config::Config;
///
/// # #[cfg(not(feature = "redis"))] fn main() {}
/// # #[cfg(feature = "redis")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::parse(r#"
///     [backend.main]
///     url = "redis://app:s3cret@cache"
/// "#)?;
/// let url = config.backends()[0].url.as_ref().ok_or("the URL is not available here")?;
/// assert_eq!(url.to_string(), "redis://app:***@cache");
/// assert_eq!(url.expose(), "redis://app:s3cret@cache");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SecretUrl {
    text: SecretString,
    url: LockUrl,
}

impl SecretUrl {
    pub(super) fn parse(text: String) -> Result<Self> {
        let url = LockUrl::parse(&text)?;
        let text = text.into();
        Ok(Self { text, url })
    }

    /// The URL in clear text: for [`Registry::connect`](polylock_core::Registry::connect), and for
    /// nothing that prints.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }

    /// The URL taken apart.
    #[must_use]
    pub fn url(&self) -> &LockUrl {
        &self.url
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.url, f)
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretUrl({})", self.url)
    }
}

/// A key of `[backend.NAME.options]`, whose value may be a password.
pub(super) struct UrlOption {
    pub(super) name: Spanned<String>,
    value: SecretString,
}

impl UrlOption {
    /// In the order of the file.
    pub(super) fn all(options: BTreeMap<Spanned<String>, Parameter>) -> Vec<Self> {
        let options = options.into_iter().map(|(name, Parameter(value))| {
            let value = value.into();
            Self { name, value }
        });
        let mut options: Vec<_> = options.collect();
        options.sort_by_key(|option| option.name.span().start);
        options
    }

    pub(super) fn name_and_value(&self) -> (&str, &str) {
        (self.name.get_ref(), self.value.expose_secret())
    }

    pub(super) fn is_shown(&self) -> bool {
        LockUrl::shows(self.name.get_ref())
    }

    /// The value for people.
    pub(super) fn shown(&self) -> &str {
        match self.is_shown() {
            true => self.value.expose_secret(),
            false => "***",
        }
    }
}

/// Adds parameters to a URL.
///
/// Those that are shown go first: of a URL, nothing is shown that follows what may be a secret.
pub(super) fn with_params<'p>(
    url: &str,
    params: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let params = params.into_iter();
    let (shown, hidden): (Vec<_>, Vec<_>) = params.partition(|(name, _)| LockUrl::shows(name));
    let encoded = |(name, value)| {
        let [name, value] = [name, value].map(|text| utf8_percent_encode(text, PARAM));
        format!("{name}={value}")
    };
    let mut all: Vec<_> = shown.into_iter().map(encoded).collect();
    all.extend(Some(query.to_owned()).filter(|query| !query.is_empty()));
    all.extend(hidden.into_iter().map(encoded));
    match all.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", all.join("&")),
    }
}

const PARAM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// Puts a namespace into a URL, in place of one that is there.
#[must_use]
pub fn with_namespace(url: &str, namespace: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let others = query.split('&').filter(|param| !is_namespace(param));
    let others = others.collect::<Vec<_>>().join("&");
    with_params(&format!("{base}?{others}"), [("namespace", namespace)])
}

/// Whether a URL names a namespace.
#[must_use]
pub fn has_namespace(url: &str) -> bool {
    let (_, query) = url.split_once('?').unwrap_or_default();
    query.split('&').any(is_namespace)
}

fn is_namespace(param: &str) -> bool {
    param.split('=').next() == Some("namespace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_go_before_secrets() {
        let secret = [("auth", "q&r"), ("busy-timeout", "5s")];
        let expected = "redis://h?busy-timeout=5s&password=p&auth=q%26r";
        assert_eq!(with_params("redis://h?password=p", secret), expected);
        assert_eq!(with_params("memory:", []), "memory:");
        assert_eq!(with_params("memory:?a=b", []), "memory:?a=b");
        assert_eq!(
            with_params("memory:", [("mode", "x y")]),
            "memory:?mode=x%20y"
        );
    }

    #[test]
    fn a_namespace_replaces_another_one() {
        let table = [
            ("memory:", false, "memory:?namespace=x%2Fy"),
            ("memory:?namespace=a", true, "memory:?namespace=x%2Fy"),
            (
                "memory:?a=b&namespace=a&c=d",
                true,
                "memory:?namespace=x%2Fy&a=b&c=d",
            ),
            (
                "memory:?namespaces=a",
                false,
                "memory:?namespace=x%2Fy&namespaces=a",
            ),
        ];
        for (url, has, with) in table {
            let found = (has_namespace(url), with_namespace(url, "x/y"));
            assert_eq!(found, (has, with.to_owned()));
        }
    }
}
