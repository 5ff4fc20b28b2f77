//! The variables that override the file.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use super::entry::Value;
use super::error::Report;
use super::origin::{At, Found};
use super::settings::LockSettings;

/// Looks up variables.
#[derive(Clone)]
pub(super) struct Environment(Arc<Lookup>);

type Lookup = dyn Fn(&str) -> Option<OsString> + Send + Sync;

impl Environment {
    pub(super) fn new(lookup: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    /// A variable that is set and not empty.
    pub(super) fn text(&self, variable: &str, report: &mut Report<'_>) -> Option<Found<String>> {
        let value = (self.0)(variable).filter(|value| !value.is_empty())?;
        let at = At::Environment(variable.to_owned());
        match value.into_string() {
            Ok(text) => Some(Found::new(text, at)),
            Err(_) => {
                report.error(&at, "the value is not UTF-8");
                None
            }
        }
    }

    /// The variables of a backend or a class.
    pub(super) fn lock_settings(&self, prefix: &str, report: &mut Report<'_>) -> LockSettings {
        LockSettings {
            max_hold: self.parsed(prefix, "MAX_HOLD", report),
            min_hold: self.parsed(prefix, "MIN_HOLD", report),
            ttl: self.parsed(prefix, "TTL", report),
            wait: self.parsed(prefix, "WAIT", report),
        }
    }

    fn parsed<T: Value>(
        &self,
        prefix: &str,
        name: &str,
        report: &mut Report<'_>,
    ) -> Option<Found<T>> {
        let Found { value: text, at } = self.text(&format!("{prefix}{name}"), report)?;
        match T::from_text(&text) {
            Ok(value) => Some(Found::new(value, at)),
            Err(wrong) => {
                report.error(&at, wrong);
                None
            }
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment(..)")
    }
}

/// The beginning of the variables of a backend.
pub(super) fn of_backend(name: &str) -> String {
    format!("LOCK_BACKEND_{}_", spelt(name))
}

/// The beginning of the variables of a class.
pub(super) fn of_class(name: &str) -> String {
    format!("LOCK_CLASS_{}_", spelt(name))
}

/// A name as a part of the name of a variable.
fn spelt(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// The backend that is used by default.
pub(super) const PROFILE: &str = "LOCK_PROFILE";

/// The URL of the backend that is used by default, unless [`PROFILE`] or the program names it.
pub(super) const URL: &str = "LOCK_URL";

/// The beginning of the variables of the backend that is used by default.
pub(super) const OF_DEFAULT: &str = "LOCK_";

/// Goes before every key. It is not `LOCK_NAMESPACE`, in which `lockctl run` passes the namespace
/// of its own lock to its command: a service under `lockctl` would lock other keys than its peers.
pub(super) const NAMESPACE: &str = "LOCK_KEY_NAMESPACE";
