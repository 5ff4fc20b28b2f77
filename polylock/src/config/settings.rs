//! Backends and classes as they are after file, environment and flags.

use std::time::Duration;

use lock_core::{AcquireRequest, LockKey, Wait};

use super::error::Report;
use super::file::Parameter;
use super::origin::{At, Found};
use super::requirement::Requirement;
use super::secret::SecretUrl;
use super::value::MaxHold;

/// A backend of a configuration.
#[derive(Clone, Debug)]
pub struct BackendSettings {
    pub(super) name: Found<String>,
    pub(super) url: Option<Found<SecretUrl>>,
    pub(super) options: Vec<Parameter>,
    pub(super) migrate_from: Option<Found<String>>,
    pub(super) lock_settings: LockSettings,
    pub(super) is_opened: bool,
}

impl BackendSettings {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name.value
    }

    /// Its URL, with the options and the namespace; `None` if the backend is not used and its
    /// URL is not available here.
    #[must_use]
    pub fn url(&self) -> Option<&SecretUrl> {
        self.url.as_ref().map(|found| &found.value)
    }

    /// The backend that its locks are acquired on as well, while a fleet migrates from there.
    #[must_use]
    pub fn migrate_from(&self) -> Option<&str> {
        let from = self.migrate_from.as_ref();
        from.map(|found| found.value.as_str())
    }

    /// How its locks are requested where no class is named.
    #[must_use]
    pub fn lock_settings(&self) -> &LockSettings {
        &self.lock_settings
    }

    /// Whether [`Config::connect`](super::Config::connect) opens it.
    #[must_use]
    pub fn is_opened(&self) -> bool {
        self.is_opened
    }
}

/// A class of locks of a configuration.
#[derive(Clone, Debug)]
pub struct ClassSettings {
    pub(super) name: Found<String>,
    pub(super) backend: Found<String>,
    pub(super) require: Vec<Found<Requirement>>,
    pub(super) lock_settings: LockSettings,
    pub(super) is_opened: bool,
}

impl ClassSettings {
    /// Its name, which is the [class](lock_core::AcquireRequest::class) of its requests.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name.value
    }

    /// The name of its backend.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend.value
    }

    /// How its locks are requested; what the class leaves out is that of its backend.
    #[must_use]
    pub fn lock_settings(&self) -> &LockSettings {
        &self.lock_settings
    }

    /// What it requires of its backend.
    pub fn require(&self) -> impl Iterator<Item = Requirement> {
        self.require.iter().map(|found| found.value)
    }
}

/// How locks are requested: ttl, wait, max-hold and min-hold.
///
/// `None` where the configuration says nothing: the request keeps its own default.
#[derive(Clone, Debug, Default)]
pub struct LockSettings {
    pub(super) max_hold: Option<Found<MaxHold>>,
    pub(super) min_hold: Option<Found<Duration>>,
    pub(super) ttl: Option<Found<Duration>>,
    pub(super) wait: Option<Found<Wait>>,
}

impl LockSettings {
    /// The lease.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl.as_ref().map(|found| found.value)
    }

    /// How long to wait.
    #[must_use]
    pub fn wait(&self) -> Option<Wait> {
        self.wait.as_ref().map(|found| found.value)
    }

    /// Max time that the lock is renewed; `Some(None)` without a limit.
    #[must_use]
    pub fn max_hold(&self) -> Option<Option<Duration>> {
        self.max_hold.as_ref().map(|found| found.value.0)
    }

    /// Min time that the lock stays held.
    #[must_use]
    pub fn min_hold(&self) -> Option<Duration> {
        self.min_hold.as_ref().map(|found| found.value)
    }

    /// Sets what the configuration says, and leaves the rest of the request as it is.
    #[must_use]
    pub fn apply(&self, mut request: AcquireRequest) -> AcquireRequest {
        if let Some(ttl) = self.ttl() {
            request = request.with_ttl(ttl);
        }
        if let Some(wait) = self.wait() {
            request = request.with_wait(wait);
        }
        if let Some(max_hold) = self.max_hold() {
            request = request.with_max_hold(max_hold);
        }
        if let Some(min_hold) = self.min_hold() {
            request = request.with_min_hold(min_hold);
        }
        request
    }

    /// These; those `below` where they are missing.
    pub(super) fn over(self, below: &Self) -> Self {
        Self {
            max_hold: self.max_hold.or_else(|| below.max_hold.clone()),
            min_hold: self.min_hold.or_else(|| below.min_hold.clone()),
            ttl: self.ttl.or_else(|| below.ttl.clone()),
            wait: self.wait.or_else(|| below.wait.clone()),
        }
    }

    /// Reports values that no request accepts.
    pub(super) fn check(&self, report: &mut Report<'_>) {
        let Self {
            max_hold,
            min_hold,
            ttl,
            ..
        } = self;
        // Each alone, so that each error has its own place.
        let alone = [
            (
                place(ttl),
                Self {
                    ttl: ttl.clone(),
                    ..Self::default()
                },
            ),
            (
                place(min_hold),
                Self {
                    min_hold: min_hold.clone(),
                    max_hold: Some(Found::new(MaxHold(None), At::Default)),
                    ..Self::default()
                },
            ),
            (
                place(max_hold),
                Self {
                    max_hold: max_hold.clone(),
                    ..Self::default()
                },
            ),
        ];
        let mut is_right = true;
        for (at, settings) in alone {
            if let (Some(at), Some(message)) = (at, settings.wrong()) {
                report.error(at, message);
                is_right = false;
            }
        }
        // The two depend on each other; the default of max-hold is an hour.
        if let (true, Some(at)) = (is_right, place(max_hold).or_else(|| place(min_hold)))
            && let Some(message) = self.wrong()
        {
            report.error(at, message);
        }
        if let Some(ttl) = ttl.as_ref().filter(|ttl| ttl.value < SHORT_TTL) {
            let message = "a lease below 5s is lost in a short pause or failover";
            report.warning(&ttl.at, message);
        }
    }

    fn wrong(&self) -> Option<String> {
        let key = LockKey::new("any").expect("BUG: a word is a key");
        let request = self.apply(AcquireRequest::new(key));
        let error = request.validate().err()?;
        Some(error.message().replace("_hold", "-hold"))
    }
}

fn place<T>(found: &Option<Found<T>>) -> Option<&At> {
    found.as_ref().map(|found| &found.at)
}

/// Leases below have a warning, as in the engine.
const SHORT_TTL: Duration = Duration::from_secs(5);
