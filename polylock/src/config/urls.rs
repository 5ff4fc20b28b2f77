//! The URL of each backend: where it comes from, what is added to it, and whether it is right.

use std::fs;
use std::path::Path;

use lock_core::layers::Prefix;
use lock_core::{LockKey, LockUrl, Registry};

use super::document::{BackendTable, Parameter, UrlKey};
use super::environment;
use super::fit;
use super::inputs::Inputs;
use super::open::is_open;
use super::place::{At, Found};
use super::report::Report;
use super::secret::{SecretUrl, has_namespace, with_params, without_namespace};
use super::words::{is_path, quoted};

/// What the URLs of all backends have in common.
pub(super) struct Urls<'i> {
    /// The file of the configuration, if it is from one.
    path: Option<&'i Path>,
    inputs: &'i Inputs,
    /// Whether `LOCK_URL` says where the default backend is.
    reads_variable: bool,
    namespace: Option<Found<String>>,
}

/// How a backend is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) is_default: bool,
    /// Whether its URL must be there: it is opened, or another one is moved to from it.
    pub(super) is_needed: bool,
    pub(super) is_opened: bool,
}

/// The text of a URL.
struct Chosen {
    text: Found<String>,
    /// Where the text is, if it is not in the file itself.
    place: Option<String>,
}

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
        let namespace = flag.or(env).or(namespace);
        let key = LockKey::new("any").expect("BUG: a word is a key");
        let namespace = namespace.filter(|namespace| {
            let checked = match namespace.value.as_str() {
                "" => return true,
                name => Prefix::stored_key(name, &key),
            };
            let wrong = checked.as_ref().err();
            if let Some(error) = wrong {
                report.mistake(&namespace.at, error.message());
            }
            wrong.is_none()
        });
        Self {
            path,
            inputs,
            reads_variable,
            namespace,
        }
    }

    /// What goes before every key of a URL that does not say.
    pub(super) fn namespace(&self) -> Option<&Found<String>> {
        self.namespace.as_ref()
    }

    /// The URL of a backend, if there is one and it is right.
    pub(super) fn of(
        &self,
        table: &BackendTable,
        used: Use,
        report: &mut Report<'_>,
    ) -> Option<Found<SecretUrl>> {
        let Chosen { text, place } = self.choose(table, used, report)?;
        let mut options: Vec<_> = table.options.iter().collect();
        // One message at a time is what backends have, so what was wrong is left out and the rest
        // is looked at again.
        loop {
            let url = self.complete(&text, &options);
            let Err(error) = fit::check(&self.inputs.registry, &url) else {
                let url = SecretUrl::parse(url).ok()?;
                return Some(Found::new(url, text.at));
            };
            let message = error.message();
            if !self.has_scheme(&url) && !used.is_needed {
                report.warning(&text.at, message);
                return None;
            }
            match blamed(message, &options) {
                Some(at) => {
                    let option = options.remove(at);
                    let origin = match &text.at {
                        At::Span(_) => String::new(),
                        at => format!(" (the URL is from {})", report.origin(at)),
                    };
                    report.mistake(&option.name.at, format!("{message}{origin}"));
                }
                None => {
                    report.mistake(&text.at, with_hint(&text.value, place.as_deref(), message));
                    return None;
                }
            }
        }
    }

    fn choose(&self, table: &BackendTable, used: Use, report: &mut Report<'_>) -> Option<Chosen> {
        let env = &self.inputs.env;
        let own = format!("{}URL", environment::of_backend(&table.name.value));
        let flag = self.inputs.url.clone().filter(|_| used.is_default);
        let variable = used.is_default && self.reads_variable;
        let above = flag
            .map(|url| Found::new(url, At::Flag))
            .or_else(|| env.text(&own, report))
            .or_else(|| variable.then(|| env.text(environment::URL, report))?);
        if let Some(text) = above {
            return Some(Chosen { text, place: None });
        }
        let fallback = self.inputs.fallback.clone();
        let text = match &table.url {
            Some((UrlKey::Env, variable)) => self.in_variable(variable, used, report)?,
            Some((UrlKey::File, path)) => self.in_file(path, used, report)?,
            Some((UrlKey::Url, url)) => {
                self.look_at(url, &table.options, report);
                url.clone()
            }
            None if table.name.at == At::Default && fallback.is_some() => {
                Found::new(fallback?, At::Default)
            }
            None if table.is_url_wrong => return None,
            None => {
                let name = quoted(&table.name.value);
                report.mistake(
                    &table.name.at,
                    format!("the backend {name} has none of url, url-env and url-file"),
                );
                return None;
            }
        };
        let place = match &table.url {
            Some((UrlKey::Env, variable)) => Some(format!("the variable {}", variable.value)),
            Some((UrlKey::File, _)) => Some("the file".to_owned()),
            _ => None,
        };
        Some(Chosen { text, place })
    }

    /// Lets a URL be quoted without its secrets, and warns if they can be read in the file.
    fn look_at(&self, url: &Found<String>, options: &[Parameter], report: &mut Report<'_>) {
        let parsed = LockUrl::parse(&url.value);
        if let (Ok(parsed), At::Span(span)) = (&parsed, &url.at) {
            report.lines.show_as(span, format!("\"{parsed}\""));
        }
        let is_secret = parsed.is_ok_and(|url| has_password(&url))
            || options
                .iter()
                .any(|option| !LockUrl::shows(&option.name.value));
        if is_secret && self.path.is_some_and(is_open) {
            let message = "everybody can read this file, which may have a password in it: take the right \
                           from others, or use url-env or url-file";
            report.warning(&url.at, message);
        }
    }

    fn in_variable(
        &self,
        variable: &Found<String>,
        used: Use,
        report: &mut Report<'_>,
    ) -> Option<Found<String>> {
        match self.inputs.env.text(&variable.value, report) {
            Some(url) => Some(Found::new(url.value, variable.at.clone())),
            None => {
                let name = quoted(&variable.value);
                let message = format!("the variable {name} is not set, or empty");
                missing(&variable.at, message, used, report);
                None
            }
        }
    }

    fn in_file(
        &self,
        path: &Found<String>,
        used: Use,
        report: &mut Report<'_>,
    ) -> Option<Found<String>> {
        let directory = self.path.and_then(Path::parent);
        let place = directory.unwrap_or_else(|| Path::new("")).join(&path.value);
        let shown = match is_path(&path.value) {
            true => format!("the file {}", place.display()),
            false => "the file".to_owned(),
        };
        match fs::read_to_string(&place) {
            Ok(text) => {
                if is_open_secret(&text, &place) {
                    let message =
                        format!("everybody can read {shown}, which may have a password in it");
                    report.warning(&path.at, message);
                }
                Some(Found::new(text.trim().to_owned(), path.at.clone()))
            }
            Err(error) => {
                let message = format!("{shown} cannot be read: {error}");
                missing(&path.at, message, used, report);
                None
            }
        }
    }

    /// The URL with the parameters of the file and the namespace.
    fn complete(&self, text: &Found<String>, options: &[&Parameter]) -> String {
        let options = options.iter().map(|option| {
            let Parameter { name, value } = option;
            (name.value.as_str(), value.as_str())
        });
        let url = with_params(text.value.trim(), options);
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
        let registry: &Registry = &self.inputs.registry;
        LockUrl::parse(url).map_or(true, |url| {
            registry.schemes().any(|known| known == url.scheme())
        })
    }
}

/// What a backend that is not opened does not have, it does not need.
fn missing(at: &At, message: String, used: Use, report: &mut Report<'_>) {
    match used.is_needed {
        true => report.mistake(at, message),
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

fn with_hint(text: &str, place: Option<&str>, message: &str) -> String {
    match place {
        Some(place) => format!("the URL in {place} is wrong: {message}"),
        None if text.contains('$') => {
            format!("{message}; variables are not expanded here, name one by url-env")
        }
        None => message.to_owned(),
    }
}

/// Whether a file may have a password in it and everybody can read it.
fn is_open_secret(text: &str, file: &Path) -> bool {
    let has_password = LockUrl::parse(text).is_ok_and(|url| has_password(&url));
    has_password && is_open(file)
}

/// Whether there may be something to hide in a URL.
fn has_password(url: &LockUrl) -> bool {
    url.to_string().contains("***")
}
