//! Every value of a configuration with its origin, for people.

use std::fmt;
use std::time::Duration;

use lock_core::{AcquireRequest, Wait};

use super::origin::{At, Found, Origin};
use super::resolve::Resolved;
use super::settings::LockSettings;
use super::suggest::list as list_of;
use super::value::{MaxHold, show_duration, show_max_hold, show_wait};

/// A value of a configuration, and where it comes from.
///
/// Secrets are shown as `***`.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Setting {
    /// Its place, such as `backend.main.ttl`.
    pub key: String,
    /// The value, as it is written in a file.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// Prints `key = value (origin)`.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.key, self.value, self.origin)
    }
}

/// All values in the order of the file, defaults included.
pub(super) fn settings(resolved: &Resolved, origin: impl Fn(&At) -> Origin) -> Vec<Setting> {
    let mut list = List {
        settings: Vec::new(),
        origin,
    };
    if let Some(default) = &resolved.default {
        list.add("default", default.value.clone(), &default.at);
    }
    if let Some(namespace) = &resolved.namespace {
        list.add("namespace", namespace.value.clone(), &namespace.at);
    }
    for backend in &resolved.backends {
        let place = format!("backend.{}", backend.name.value);
        match &backend.url {
            Some(url) => list.add(&format!("{place}.url"), url.value.to_string(), &url.at),
            None => list.add(
                &format!("{place}.url"),
                "not here".to_owned(),
                &backend.name.at,
            ),
        }
        for option in &backend.options {
            let key = format!("{place}.options.{}", option.name.value);
            list.add(&key, option.shown().to_owned(), &option.name.at);
        }
        if let Some(from) = &backend.migrate_from {
            list.add(
                &format!("{place}.migrate-from"),
                from.value.clone(),
                &from.at,
            );
        }
        list.add_lock_settings(&place, &backend.lock_settings);
    }
    for class in &resolved.classes {
        let place = format!("class.{}", class.name.value);
        let backend = class.backend.value.clone();
        list.add(&format!("{place}.backend"), backend, &class.backend.at);
        list.add_lock_settings(&place, &class.lock_settings);
        if let Some(first) = class.require.first() {
            let value = list_of(class.require().map(|require| require.name()));
            list.add(&format!("{place}.require"), value, &first.at);
        }
    }
    list.settings
}

struct List<O> {
    settings: Vec<Setting>,
    origin: O,
}

impl<O: Fn(&At) -> Origin> List<O> {
    fn add(&mut self, key: &str, value: String, at: &At) {
        self.settings.push(Setting {
            key: key.to_owned(),
            value,
            origin: (self.origin)(at),
        });
    }

    fn add_lock_settings(&mut self, place: &str, settings: &LockSettings) {
        let LockSettings {
            max_hold,
            min_hold,
            ttl,
            wait,
        } = settings;
        let hold = MaxHold(Some(AcquireRequest::DEFAULT_MAX_HOLD));
        self.add_term(
            place,
            "ttl",
            ttl,
            AcquireRequest::DEFAULT_TTL,
            show_duration,
        );
        self.add_term(place, "wait", wait, Wait::default(), show_wait);
        self.add_term(place, "max-hold", max_hold, hold, show_max_hold);
        self.add_term(place, "min-hold", min_hold, Duration::ZERO, show_duration);
    }

    fn add_term<T: Copy>(
        &mut self,
        place: &str,
        key: &str,
        found: &Option<Found<T>>,
        default: T,
        show: impl Fn(T) -> String,
    ) {
        let (value, at) = match found {
            Some(found) => (found.value, &found.at),
            None => (default, &At::Default),
        };
        self.add(&format!("{place}.{key}"), show(value), at);
    }
}
