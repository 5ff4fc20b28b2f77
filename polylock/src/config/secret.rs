//! URLs that have passwords in them.

use std::fmt;

use lock_core::{LockUrl, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};

/// The URL of a backend, with its secrets: `Debug` and `Display` show `***` in their place.
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

    /// The URL in clear text: for [`Registry::connect`](lock_core::Registry::connect), and for
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

/// Adds parameters to a URL.
///
/// Those that are shown go first: of a URL, nothing is shown that follows what may be a secret.
pub(super) fn with_params<'p>(
    url: &str,
    params: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for (name, value) in params {
        let param = format!(
            "{}={}",
            utf8_percent_encode(name, PARAM),
            utf8_percent_encode(value, PARAM)
        );
        match LockUrl::shows(name) {
            true => first.push(param),
            false => last.push(param),
        }
    }
    first.extend(Some(query.to_owned()).filter(|query| !query.is_empty()));
    first.extend(last);
    match first.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", first.join("&")),
    }
}

const PARAM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// The URL without its namespace.
pub(super) fn without_namespace(url: &str) -> String {
    let Some((base, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let others = query.split('&').filter(|param| !is_namespace(param));
    let others: Vec<_> = others.collect();
    match others.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", others.join("&")),
    }
}

/// Whether a URL says what its namespace is.
pub(super) fn has_namespace(url: &str) -> bool {
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
    fn a_namespace_is_taken_out() {
        let table = [
            ("memory:", false, "memory:"),
            ("memory:?namespace=a", true, "memory:"),
            ("memory:?a=b&namespace=a&c=d", true, "memory:?a=b&c=d"),
            ("memory:?namespaces=a", false, "memory:?namespaces=a"),
        ];
        for (url, has, without) in table {
            assert_eq!(
                (has_namespace(url), without_namespace(url).as_str()),
                (has, without)
            );
        }
    }

    #[test]
    fn a_secret_is_shown_to_nobody_who_does_not_ask() {
        let url = SecretUrl::parse("redis://app:s3ntinel@cache".to_owned()).unwrap();
        assert_eq!(
            format!("{url} {url:?}"),
            "redis://app:***@cache SecretUrl(redis://app:***@cache)"
        );
        assert_eq!(url.expose(), "redis://app:s3ntinel@cache");
    }
}
