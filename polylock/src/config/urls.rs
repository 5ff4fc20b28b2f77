//! The URL of each backend: its source, its parameters, and whether its backend accepts it.

use std::fs;
use std::path::Path;

use lock_core::layers::Prefix;
use lock_core::{LockKey, LockUrl};
use secrecy::{ExposeSecret, SecretString};

use super::entry::{Entry, Named};
use super::environment;
use super::error::Report;
use super::file::{BackendTable, Parameter};
use super::loader::Inputs;
use super::origin::{At, Found};
use super::secret::{SecretUrl, has_namespace, with_params, without_namespace};
use super::suggest::{is_path, quoted};
use super::validate;

/// What the URLs of all backends have in common.
pub(super) struct Urls<'i> {
    /// The configuration file, if there is one.
    path: Option<&'i Path>,
    inputs: &'i Inputs,
    /// Whether `LOCK_URL` is the URL of the default backend.
    reads_variable: bool,
    namespace: Option<Found<String>>,
}

/// How a backend is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) is_default: bool,
    /// Whether its URL must be there: it is opened, or one that is opened migrates from it.
    pub(super) is_needed: bool,
    pub(super) is_opened: bool,
}

/// The text of a URL, and the words for its source if it is not in the file itself.
type Chosen = (Found<SecretString>, Option<String>);

impl<'i> Urls<'i> {
    pub(super) fn new(
        path: Option<&'i Path>,
        inputs: &'i Inputs,
        reads_variable: bool,
        namespace: Option<Found<String>>,
        report: &mut Report<'_>,
    ) -> Self {
        let flag = inputs.namespace.clone();
        let flag = flag.map(|namespace| Found::new(namespace, At::Flag));
        let env = inputs.env.text(environment::NAMESPACE, report);
        let key = LockKey::new("any").expect("BUG: a word is a key");
        let namespace = flag.or(env).or(namespace).filter(|namespace| {
            let name = namespace.value.as_str();
            match Prefix::stored_key(name, &key) {
                Err(error) if !name.is_empty() => {
                    report.error(&namespace.at, error.message());
                    false
                }
                _ => true,
            }
        });
        Self {
            path,
            inputs,
            reads_variable,
            namespace,
        }
    }

    /// Goes before every key of URLs that name no namespace.
    pub(super) fn namespace(&self) -> Option<&Found<String>> {
        self.namespace.as_ref()
    }

    /// The URL of a backend, if there is one and it is right.
    pub(super) fn of(
        &self,
        table: &Named<BackendTable>,
        options: &[Parameter],
        used: Use,
        report: &mut Report<'_>,
    ) -> Option<Found<SecretUrl>> {
        let (text, source) = self.choose(table, options, used, report)?;
        let mut options: Vec<_> = options.iter().collect();
        // A backend reports one error at a time, so the parameter at fault is left out and the rest
        // is checked again.
        loop {
            let url = self.complete(&text, &options);
            let Err(error) = validate::url(&self.inputs.registry, &url) else {
                return Some(Found::new(SecretUrl::parse(url).ok()?, text.at));
            };
            let message = error.message();
            // A program may lack a backend that only others use, but a misspelt one exists nowhere.
            let is_foreign = !self.has_scheme(&url) && !message.contains("did you mean");
            if is_foreign && !used.is_needed {
                report.warning(&text.at, message);
                return None;
            }
            let Some(at) = blamed(message, &options) else {
                let text_of_url = text.value.expose_secret();
                let message = with_hint(text_of_url, source.as_deref(), message);
                report.error(&text.at, message);
                return None;
            };
            let option = options.remove(at);
            let origin = match &text.at {
                At::Span(_) => String::new(),
                at => format!(" (the URL is from {})", report.origin(at)),
            };
            report.error(&option.name.at, format!("{message}{origin}"));
        }
    }

    fn choose(
        &self,
        Named { name, table }: &Named<BackendTable>,
        options: &[Parameter],
        used: Use,
        report: &mut Report<'_>,
    ) -> Option<Chosen> {
        // One by one, so that each that is too many has its error.
        let places = [
            place(&table.url),
            place(&table.url_env),
            place(&table.url_file),
        ];
        let (is_many, is_wrong) = (
            places.iter().flatten().count() > 1,
            places.contains(&Some(None)),
        );
        for at in places.iter().flatten().flatten().filter(|_| is_many) {
            let message = "a backend has one of url, url-env and url-file";
            report.error(at, message);
        }
        let env = &self.inputs.env;
        let own = format!("{}URL", environment::of_backend(&name.value));
        let flag = self.inputs.url.clone().filter(|_| used.is_default);
        let variable = used.is_default && self.reads_variable;
        let secret = |found: Found<String>| Found::new(found.value.into(), found.at);
        let above = flag
            .map(|url| Found::new(url, At::Flag))
            .or_else(|| env.text(&own, report).map(secret))
            .or_else(|| variable.then(|| env.text(environment::URL, report).map(secret))?);
        if let Some(text) = above {
            return Some((text, None));
        }
        if let Some(url) = table.url.found() {
            self.warn_of_password(&url, options, report);
            return Some((url, None));
        }
        if let Some(variable) = table.url_env.found() {
            let text = self.in_variable(&variable, used, report)?;
            return Some((text, Some(format!("the variable {}", variable.value))));
        }
        if let Some(path) = table.url_file.found() {
            let text = self.in_file(&path, used, report)?;
            return Some((text, Some("the file".to_owned())));
        }
        if let (At::Default, Some(fallback)) = (&name.at, &self.inputs.fallback) {
            return Some((Found::new(fallback.clone(), At::Default), None));
        }
        if !is_wrong {
            let name_of = quoted(&name.value);
            let message = format!("the backend {name_of} has none of url, url-env and url-file");
            report.error(&name.at, message);
        }
        None
    }

    /// Warns if everyone can read the secrets of a URL in the file.
    fn warn_of_password(
        &self,
        url: &Found<SecretString>,
        options: &[Parameter],
        report: &mut Report<'_>,
    ) {
        let is_shown = |option: &Parameter| LockUrl::shows(&option.name.value);
        let is_secret = has_password(url.value.expose_secret()) || !options.iter().all(is_shown);
        if is_secret && self.path.is_some_and(is_world_readable) {
            let message = "everyone can read this file, which may have a password in it: remove \
                           the permission of others, or use url-env or url-file";
            report.warning(&url.at, message);
        }
    }

    fn in_variable(
        &self,
        variable: &Found<String>,
        used: Use,
        report: &mut Report<'_>,
    ) -> Option<Found<SecretString>> {
        if let Some(url) = self.inputs.env.text(&variable.value, report) {
            return Some(Found::new(url.value.into(), variable.at.clone()));
        }
        let name = quoted(&variable.value);
        let message = format!("the variable {name} is not set, or empty");
        missing(&variable.at, message, used, report);
        None
    }

    fn in_file(
        &self,
        path: &Found<String>,
        used: Use,
        report: &mut Report<'_>,
    ) -> Option<Found<SecretString>> {
        let directory = self.path.and_then(Path::parent);
        let place = directory.unwrap_or_else(|| Path::new("")).join(&path.value);
        let shown = match is_path(&path.value) {
            true => format!("the file {}", place.display()),
            false => "the file".to_owned(),
        };
        match fs::read_to_string(&place) {
            Ok(text) => {
                if has_password(&text) && is_world_readable(&place) {
                    let message =
                        format!("everyone can read {shown}, which may have a password in it");
                    report.warning(&path.at, message);
                }
                Some(Found::new(text.trim().into(), path.at.clone()))
            }
            Err(error) => {
                let message = format!("{shown} cannot be read: {error}");
                missing(&path.at, message, used, report);
                None
            }
        }
    }

    /// The URL with the parameters of the file and the namespace.
    fn complete(&self, text: &Found<SecretString>, options: &[&Parameter]) -> String {
        let options = options.iter().map(|option| {
            let Parameter { name, value } = option;
            (name.value.as_str(), value.expose_secret())
        });
        let url = with_params(text.value.expose_secret().trim(), options);
        let Some(namespace) = &self.namespace else {
            return url;
        };
        let replaces = match namespace.at {
            At::Environment(_) => text.at != At::Flag,
            At::Flag => true,
            _ => false,
        };
        match (replaces, has_namespace(&url)) {
            (false, true) => url,
            _ => {
                let param = ("namespace", namespace.value.as_str());
                with_params(&without_namespace(&url), [param])
            }
        }
    }

    fn has_scheme(&self, url: &str) -> bool {
        let registry = &self.inputs.registry;
        LockUrl::parse(url).map_or(true, |url| {
            registry.schemes().any(|known| known == url.scheme())
        })
    }
}

/// The place of an entry, inside of `None` where it is wrong.
fn place<T: Clone>(entry: &Entry<T>) -> Option<Option<At>> {
    match entry {
        Entry::Missing => None,
        Entry::Found(found) => Some(Some(found.at.clone())),
        Entry::Wrong => Some(None),
    }
}

/// A backend that is not opened may miss its URL.
fn missing(at: &At, message: String, used: Use, report: &mut Report<'_>) {
    match used.is_needed {
        true => report.error(at, message),
        false => report.warning(at, message),
    }
}

/// The option that a message is about: the one that it names first.
fn blamed(message: &str, options: &[&Parameter]) -> Option<usize> {
    let named = |option: &&Parameter| {
        let name = &option.name.value;
        match message.starts_with(name.as_str()) {
            true => Some(0),
            false => message.find(&format!("{name:?}")),
        }
    };
    let places = options.iter().map(named).enumerate();
    let places = places.filter_map(|(at, place)| Some((place?, at)));
    places.min().map(|(_, at)| at)
}

fn with_hint(text: &str, source: Option<&str>, message: &str) -> String {
    match source {
        Some(source) => format!("the URL in {source} is wrong: {message}"),
        None if text.contains('$') => {
            format!("{message}; variables are not expanded here, name one by url-env")
        }
        None => message.to_owned(),
    }
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
