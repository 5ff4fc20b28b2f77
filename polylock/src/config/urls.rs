//! The URL of each backend: its source, its parameters, its secrets, and whether its backend accepts it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use polylock_core::LockUrl;
use secrecy::{ExposeSecret, SecretString};
use toml::Spanned;

use super::context::Context;
use super::error::{ByteSpan, Origin};
use super::secret_url::SecretUrl;
use super::table::ConfigTable;
use super::value::{Parameter, quoted};

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

    fn name_and_value(&self) -> (&str, &str) {
        (self.name.get_ref(), self.value.expose_secret())
    }

    fn is_shown(&self) -> bool {
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
fn with_params<'p>(url: &str, params: impl IntoIterator<Item = (&'p str, &'p str)>) -> String {
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
    let others = query
        .split('&')
        .filter(|param| !param.is_empty() && !is_namespace(param));
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

/// What the URLs of all backends have in common.
pub(super) struct Urls<'c, 't, 'l> {
    pub(super) cx: &'c Context<'t, 'l>,
    /// Goes before every key of URLs that name no namespace.
    pub(super) namespace: Option<Spanned<String>>,
}

/// What a backend is needed for. One that is unused may miss its URL.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum BackendUse {
    MigratedFrom,
    Opened,
    Unused,
}

/// The keys that say where a URL is.
const SOURCES: [&str; 3] = ["url", "url-env", "url-file"];

/// Reports each source of a URL where a backend of the file has several.
pub(super) fn check_sources(cx: &Context<'_, '_>, backend: &ConfigTable<'_>) {
    let spans: Vec<_> = SOURCES.iter().filter_map(|key| backend.span(key)).collect();
    let wrong = SOURCES.iter().filter(|key| backend.is_wrong(key)).count();
    if spans.len() + wrong > 1 {
        for span in spans {
            let message = "a backend has one of url, url-env and url-file";
            cx.report.error(span, message);
        }
    }
}

impl Urls<'_, '_, '_> {
    /// The URL of a backend, if there is one and it is right.
    pub(super) fn of(
        &self,
        backend: &ConfigTable<'_>,
        options: &[UrlOption],
        need: BackendUse,
    ) -> Option<Spanned<SecretUrl>> {
        let report = self.cx.report;
        let (text, source) = self.choose(backend, options, need)?;
        let origin = report.origin(&text.span());
        let mut options: Vec<_> = options.iter().collect();
        // A backend reports one error at a time, so the parameter at fault is left out and the rest
        // is checked again.
        loop {
            let url = self.complete(&text, &origin, &options);
            let Err(error) = self.cx.loader.registry.check_url(&url) else {
                let url = SecretUrl::parse(url).ok()?;
                self.warn_of_password_files(&text.span(), url.url());
                return Some(Spanned::new(text.span(), url));
            };
            let message = match source {
                Some(_) if !self.may_be_shown(&text) => "its scheme is not known",
                _ => error.message(),
            };
            // A program may lack a backend that only others use, but a misspelt one exists nowhere.
            let is_foreign = !self.has_scheme(&url) && !message.contains("did you mean");
            if is_foreign && need == BackendUse::Unused {
                report.warning(text.span(), message);
                return None;
            }
            let Some(at) = blamed(message, &options) else {
                let hint = "variables are not expanded here, name one by url-env";
                let message = match source {
                    Some(source) => format!("the URL in {source} is wrong: {message}"),
                    None if text.get_ref().contains('$') => format!("{message}; {hint}"),
                    None => message.to_owned(),
                };
                report.error(text.span(), message);
                return None;
            };
            let option = options.remove(at);
            let source = match &origin {
                Origin::File { .. } => String::new(),
                origin => format!(" (the URL is from {origin})"),
            };
            report.error(option.name.span(), format!("{message}{source}"));
        }
    }

    /// The text of a URL, and the words for its source if that is named in the file.
    fn choose(
        &self,
        backend: &ConfigTable<'_>,
        options: &[UrlOption],
        need: BackendUse,
    ) -> Option<(Spanned<String>, Option<String>)> {
        if let Some(url) = backend.text("url") {
            self.warn_of_password(&url, options);
            return Some((url, None));
        }
        if let Some(variable) = backend.text("url-env") {
            let url = self.in_variable(&variable, need)?;
            return Some((url, Some(format!("the variable {}", variable.get_ref()))));
        }
        if let Some(path) = backend.text("url-file") {
            return Some((self.in_file(&path, need)?, Some("the file".to_owned())));
        }
        if !SOURCES.iter().any(|key| backend.is_wrong(key)) {
            let name = quoted(backend.name());
            let message = format!("the backend {name} has none of url, url-env and url-file");
            self.cx.report.error(backend.name.span(), message);
        }
        None
    }

    /// Warns if everyone can read the secrets of a URL in the file.
    fn warn_of_password(&self, url: &Spanned<String>, options: &[UrlOption]) {
        let report = self.cx.report;
        let is_secret = has_password(url.get_ref()) || !options.iter().all(UrlOption::is_shown);
        let is_in_file = matches!(report.origin(&url.span()), Origin::File { .. });
        if is_secret && is_in_file && self.cx.path.is_some_and(is_world_readable) {
            let message = "everyone can read this file, which may have a password in it: remove \
                           the permission of others, or use url-env or url-file";
            report.warning(url.span(), message);
        }
    }

    /// Warns if everyone can read the file of a password that a parameter names.
    fn warn_of_password_files(&self, span: &ByteSpan, url: &LockUrl) {
        let mut params = url.params();
        for name in ["password-file", "sentinel-password-file"] {
            let path = params.string(name).map(Path::new);
            if path.is_some_and(is_world_readable) {
                let message = format!(
                    "everyone can read the file of {name}, which has a password in it: remove the \
                     permission of others"
                );
                self.cx.report.warning(span.clone(), message);
            }
        }
    }

    fn in_variable(&self, variable: &Spanned<String>, need: BackendUse) -> Option<Spanned<String>> {
        let url = self.cx.variable(variable.get_ref());
        if url.is_none() {
            let name = quoted(variable.get_ref());
            let message = format!("the variable {name} is not set, or empty");
            self.missing(variable.span(), message, need);
        }
        Some(Spanned::new(variable.span(), url?.into_inner()))
    }

    fn in_file(&self, path: &Spanned<String>, need: BackendUse) -> Option<Spanned<String>> {
        let directory = self.cx.path.and_then(Path::parent);
        let place = directory.unwrap_or_else(|| Path::new(""));
        let place = place.join(path.get_ref());
        // A text that may be a URL with a password is not repeated.
        let may_be_url = path.get_ref().contains('@') || LockUrl::may_be_url(path.get_ref());
        let shown = match may_be_url {
            true => "the file".to_owned(),
            false => format!("the file {}", place.display()),
        };
        match fs::read_to_string(&place) {
            Ok(text) => {
                if has_password(&text) && is_world_readable(&place) {
                    let message =
                        format!("everyone can read {shown}, which may have a password in it");
                    self.cx.report.warning(path.span(), message);
                }
                Some(Spanned::new(path.span(), text.trim().to_owned()))
            }
            Err(error) => {
                let message = format!("{shown} cannot be read: {error}");
                self.missing(path.span(), message, need);
                None
            }
        }
    }

    /// A backend that is not opened may miss its URL.
    fn missing(&self, span: ByteSpan, message: String, need: BackendUse) {
        match need {
            BackendUse::MigratedFrom | BackendUse::Opened => self.cx.report.error(span, message),
            BackendUse::Unused => self.cx.report.warning(span, message),
        }
    }

    /// The URL with the parameters of the file and the namespace.
    fn complete(&self, text: &Spanned<String>, origin: &Origin, options: &[&UrlOption]) -> String {
        let options = options.iter().map(|option| option.name_and_value());
        let url = with_params(text.get_ref().trim(), options);
        let Some(namespace) = &self.namespace else {
            return url;
        };
        let replaces = match self.cx.report.origin(&namespace.span()) {
            Origin::Environment { .. } => *origin != Origin::Flag || !has_namespace(text.get_ref()),
            Origin::Flag => true,
            _ => false,
        };
        match (replaces, has_namespace(&url)) {
            (false, true) => url,
            _ => with_namespace(&url, namespace.get_ref()),
        }
    }

    /// Whether messages may quote a part of a text that comes from `url-env` or `url-file`: a password in
    /// place of a URL has no scheme.
    fn may_be_shown(&self, text: &Spanned<String>) -> bool {
        let text = text.get_ref();
        let mut known = self.cx.loader.registry.schemes();
        let scheme = text.split_once(':').map(|(scheme, _)| scheme);
        text.contains("://") || known.any(|known| Some(known) == scheme)
    }

    fn has_scheme(&self, url: &str) -> bool {
        let registry = &self.cx.loader.registry;
        let is_registered = |url: LockUrl| registry.schemes().any(|known| known == url.scheme());
        registry.parse_url(url).map_or(true, is_registered)
    }
}

/// The option that a message is about: the one that it names first.
fn blamed(message: &str, options: &[&UrlOption]) -> Option<usize> {
    let named = |option: &&UrlOption| {
        let name = option.name.get_ref();
        match message.starts_with(name.as_str()) {
            true => Some(0),
            false => message.find(&format!("{name:?}")),
        }
    };
    let places = options.iter().map(named).enumerate();
    let places = places.filter_map(|(at, place)| Some((place?, at)));
    places.min().map(|(_, at)| at)
}

/// Whether a URL may have a secret in it.
fn has_password(url: &str) -> bool {
    LockUrl::parse(url).is_ok_and(|url| url.to_string().contains("***"))
}

/// Whether every user of the host can read a file; false where that is not known.
fn is_world_readable(file: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;

        const BY_OTHERS: u32 = 0o004;
        let metadata = file.metadata();
        metadata.is_ok_and(|metadata| metadata.permissions().mode() & BY_OTHERS != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        false
    }
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
        for (url, has, others) in [
            ("memory:", false, ""),
            ("memory:?namespace=a", true, ""),
            ("memory:?a=b&namespace=a&c=d", true, "&a=b&c=d"),
            ("memory:?a=b&&c=d&", false, "&a=b&c=d"),
            ("memory:?namespaces=a", false, "&namespaces=a"),
        ] {
            let found = (has_namespace(url), with_namespace(url, "x/y"));
            assert_eq!(found, (has, format!("memory:?namespace=x%2Fy{others}")));
        }
    }
}
