//! Backends and classes as they are after file, environment and flags.

use super::document::Parameter;
use super::place::Found;
use super::requirement::Requirement;
use super::secret::SecretUrl;
use super::terms::Terms;

/// A backend of a configuration.
#[derive(Clone, Debug)]
pub struct BackendSettings {
    pub(super) name: Found<String>,
    pub(super) url: Option<Found<SecretUrl>>,
    pub(super) options: Vec<Parameter>,
    pub(super) migrate_from: Option<Found<String>>,
    pub(super) terms: Terms,
    pub(super) is_opened: bool,
}

impl BackendSettings {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name.value
    }

    /// Its URL, with the options and the namespace; `None` if nobody uses the backend and its URL
    /// cannot be had here.
    #[must_use]
    pub fn url(&self) -> Option<&SecretUrl> {
        self.url.as_ref().map(|found| &found.value)
    }

    /// The backend that its locks are taken on as well, while a fleet moves from there.
    #[must_use]
    pub fn migrate_from(&self) -> Option<&str> {
        let from = self.migrate_from.as_ref();
        from.map(|found| found.value.as_str())
    }

    /// How its locks are requested by those who name no class.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
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
    pub(super) terms: Terms,
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

    /// How its locks are requested; what the class does not say is that of its backend.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What it demands of its backend.
    pub fn require(&self) -> impl Iterator<Item = Requirement> {
        self.require.iter().map(|found| found.value)
    }
}
