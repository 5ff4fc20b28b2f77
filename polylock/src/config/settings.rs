//! Backends and classes as they are after file, environment and flags.

use std::fmt;
use std::time::Duration;

use polylock_core::{AcquireRequest, LockKey, Wait};
#[cfg(feature = "config-schema")]
use schemars::JsonSchema;
use serde::Deserialize;

use super::error::{ByteSpan, ConfigReport, Origin};
use super::requirement::Requirement;
#[cfg(feature = "config-schema")]
use super::schemas;
use super::secret_url::SecretUrl;
use super::value::time;

/// A backend of a configuration.
///
/// The example of [`SecretUrl`] reads one.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct BackendSettings {
    /// Its name.
    pub name: String,
    /// Its URL, with the options and the namespace; `None` if the backend is not used and its URL is
    /// not available here.
    pub url: Option<SecretUrl>,
    /// The backend that its locks are acquired on as well, while a fleet migrates from there.
    pub migrate_from: Option<String>,
    /// How its locks are requested where no class is named.
    pub lock_settings: LockSettings,
    /// Whether [`Config::connect`](super::Config::connect) opens it.
    pub is_opened: bool,
}

/// A class of locks of a configuration.
///
/// # Examples
///
/// ```
/// use polylock::config::Config;
///
/// let config = Config::parse(r#"
///     [backend.main]
///     url = "memory:"
///     [class.payment]
///     ttl = "2m"
/// "#)?;
/// for class in config.classes() {
///     println!("{} on {}: {:?}", class.name, class.backend, class.lock_settings);
/// }
/// assert_eq!(config.classes()[0].name, "payment");
/// assert_eq!(config.classes()[0].backend, "main");
/// # Ok::<(), polylock::config::ConfigErrors>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct ClassSettings {
    /// Its name, which is the [class](AcquireRequest::class) of its requests.
    pub name: String,
    /// The name of its backend.
    pub backend: String,
    /// What it requires of its backend.
    pub require: Vec<Requirement>,
    /// How its locks are requested; settings that the class omits come from its backend.
    pub lock_settings: LockSettings,
    pub(super) is_opened: bool,
}

/// A value of a configuration, and where it comes from. Secrets are shown as `***`.
///
/// The example of [`Loader`](super::Loader) prints them.
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

/// How locks are requested: keys of a backend and of a class, each with a variable of its own.
///
/// `None` where the configuration says nothing: the request keeps its own default.
///
/// # Examples
///
/// For callers that build their own requests:
///
/// ```
/// use std::time::Duration;
///
/// use polylock::config::Config;
/// use polylock::{AcquireRequest, LockKey};
///
/// # fn main() -> polylock::Result<()> {
/// let config = Config::parse(r#"
///     [backend.main]
///     url = "memory:"
///     [class.payment]
///     ttl = "2m"
/// "#)?;
/// let settings = config.classes()[0].lock_settings;
/// assert_eq!((settings.ttl, settings.wait), (Some(Duration::from_secs(120)), None));
///
/// let request = settings.apply(AcquireRequest::new(LockKey::new("order/42")?));
/// assert_eq!(request.ttl(), Duration::from_secs(120));
/// assert_eq!(request.max_hold(), Some(AcquireRequest::DEFAULT_MAX_HOLD));
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(feature = "config-schema", derive(JsonSchema))]
#[serde(default, rename_all = "kebab-case")]
pub struct LockSettings {
    /// Max time that a lock is renewed. Default: that of the backend, or 1h.
    #[cfg_attr(
        feature = "config-schema",
        schemars(schema_with = "schemas::time_or_forever")
    )]
    #[serde(deserialize_with = "time")]
    pub max_hold: Option<Option<Duration>>,
    /// Min time that a lock stays held, even if it is released sooner. Default: that of the
    /// backend, or 0s.
    #[cfg_attr(feature = "config-schema", schemars(schema_with = "schemas::time"))]
    #[serde(deserialize_with = "time")]
    pub min_hold: Option<Duration>,
    /// The lease, at least 500ms on Redis (not on a quorum) and in memory, 2s on etcd, 1s elsewhere;
    /// max 24h. Renewed every third of it. Default: that of the backend, or 30s.
    #[cfg_attr(feature = "config-schema", schemars(schema_with = "schemas::time"))]
    #[serde(deserialize_with = "time")]
    pub ttl: Option<Duration>,
    /// How long to wait for a lock that another client holds. Default: that of the backend, or 30s.
    #[cfg_attr(feature = "config-schema", schemars(schema_with = "schemas::wait"))]
    #[serde(deserialize_with = "time")]
    pub wait: Option<Wait>,
}

impl LockSettings {
    /// Sets what the configuration says, and leaves the rest of the request as it is.
    #[must_use]
    pub fn apply(&self, mut request: AcquireRequest) -> AcquireRequest {
        if let Some(ttl) = self.ttl {
            request = request.with_ttl(ttl);
        }
        if let Some(wait) = self.wait {
            request = request.with_wait(wait);
        }
        if let Some(max_hold) = self.max_hold {
            request = request.with_max_hold(max_hold);
        }
        if let Some(min_hold) = self.min_hold {
            request = request.with_min_hold(min_hold);
        }
        request
    }

    /// The keys, and what counts where a configuration leaves them out.
    pub(super) fn defaults() -> [(&'static str, String); 4] {
        let request = any_request();
        let shown = |time| humantime::format_duration(time).to_string();
        let or_forever = |time: Option<_>| time.map_or_else(|| "forever".to_owned(), shown);
        let wait = match request.wait() {
            Wait::AtMost(limit) => Some(limit),
            _ => None,
        };
        [
            ("ttl", shown(request.ttl())),
            ("wait", or_forever(wait)),
            ("max-hold", or_forever(request.max_hold())),
            ("min-hold", shown(request.min_hold())),
        ]
    }

    /// Reports values that no request accepts, by the places of their keys. `own_span_of` leaves out those
    /// that are inherited.
    pub(super) fn check(
        &self,
        span_of: impl Fn(&str) -> Option<ByteSpan>,
        own_span_of: impl Fn(&str) -> Option<ByteSpan>,
        report: &ConfigReport<'_>,
    ) {
        let mut is_right = true;
        let any = || any_request().with_max_hold(None);
        // Each alone, so that each error has its own place.
        for (key, alone) in [
            ("ttl", self.ttl.map(|ttl| any().with_ttl(ttl))),
            ("wait", self.wait.map(|wait| any().with_wait(wait))),
            (
                "max-hold",
                self.max_hold.map(|hold| any().with_max_hold(hold)),
            ),
            (
                "min-hold",
                self.min_hold.map(|hold| any().with_min_hold(hold)),
            ),
        ] {
            if let (Some(span), Some(message)) = (span_of(key), alone.as_ref().and_then(wrong)) {
                report.error(span, message);
                is_right = false;
            }
        }
        // The two depend on each other; the default of max-hold is an hour. What a class inherits is checked
        // where it stands.
        let holds = own_span_of("max-hold").or_else(|| own_span_of("min-hold"));
        let all = self.apply(any_request());
        let (max_hold, min_hold) = (all.max_hold(), all.min_hold());
        if let (true, Some(span), Some(max_hold)) = (is_right, holds, max_hold)
            && max_hold < min_hold
        {
            let [max_hold, min_hold] = [max_hold, min_hold].map(humantime::format_duration);
            let message = format!(
                "max-hold must be at least min-hold, and {max_hold} is less than {min_hold}"
            );
            report.error(span, message);
        }
        if let (Some(ttl), Some(span)) = (self.ttl, span_of("ttl"))
            && ttl < AcquireRequest::SHORT_TTL
        {
            let message = "a lease below 5s is lost in a short pause or failover";
            report.warning(span, message);
        }
    }
}

/// Why no backend accepts a request.
fn wrong(request: &AcquireRequest) -> Option<String> {
    let error = request.validate().err()?;
    Some(error.message().replace("_hold", "-hold"))
}

fn any_request() -> AcquireRequest {
    AcquireRequest::new(any_key())
}

pub(super) fn any_key() -> LockKey {
    LockKey::new("any").expect("BUG: a word is a key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::keys_of;

    #[test]
    fn each_key_has_a_default() {
        let mut keys = LockSettings::defaults().map(|(key, _)| key);
        keys.sort_unstable();
        assert_eq!(keys, keys_of::<LockSettings>());
    }
}
