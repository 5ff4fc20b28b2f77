//! The open backends of a configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{DistributedLock, Error, ErrorKind, Result};

use super::class::ConfiguredLocks;
use super::suggest::{instead_of, quoted};

/// The locks of a configuration: which backend has them, by class.
///
/// Made by [`Config::connect`](super::Config::connect). Clones share the connections.
#[derive(Clone, Debug)]
pub struct Locks(Arc<Open>);

#[derive(Debug)]
pub(super) struct Open {
    pub(super) default: Option<String>,
    pub(super) backends: BTreeMap<String, ConfiguredLocks>,
    /// Unused backends of the file.
    pub(super) closed: Vec<String>,
    pub(super) classes: BTreeMap<String, ConfiguredLocks>,
}

impl Locks {
    pub(super) fn new(open: Open) -> Self {
        Self(Arc::new(open))
    }

    /// The locks of a class.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the configuration has no such class, or if it
    /// is not in the [scope](super::Loader::with_scope).
    pub fn class(&self, name: &str) -> Result<&ConfiguredLocks> {
        let classes = &self.0.classes;
        classes.get(name).ok_or_else(|| {
            let known = classes.keys().map(String::as_str);
            unknown("class", name, &instead_of(name, known))
        })
    }

    /// The locks of a backend.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the configuration has no such backend, or if
    /// it is not open because it is unused.
    pub fn backend(&self, name: &str) -> Result<&ConfiguredLocks> {
        let Open {
            backends, closed, ..
        } = &*self.0;
        backends.get(name).ok_or_else(|| {
            if closed.iter().any(|closed| closed == name) {
                let message = format!(
                    "the backend {name:?} is not open: it is not the default one and no class has \
                     it; Scope::All opens all of them"
                );
                return Error::new(ErrorKind::InvalidConfig, message);
            }
            let known = backends.keys().map(String::as_str);
            unknown("backend", name, &instead_of(name, known))
        })
    }

    /// The locks of the default backend.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the configuration has several backends and
    /// does not say which of them is the default one, or if it is not in the
    /// [scope](super::Loader::with_scope).
    pub fn default_backend(&self) -> Result<&ConfiguredLocks> {
        let default = self.0.default.as_deref().ok_or_else(|| {
            let message = "there is no default backend, write default = \"NAME\"";
            Error::new(ErrorKind::InvalidConfig, message)
        })?;
        self.backend(default)
    }

    /// The names of the backends that are open, in alphabetical order.
    pub fn backends(&self) -> impl Iterator<Item = &str> {
        self.0.backends.keys().map(String::as_str)
    }

    /// Waits for the background releases of all backends; true if all were done `within` the time.
    ///
    /// See [`DistributedLock::shutdown`].
    ///
    /// # Cancel safety
    ///
    /// The releases go on.
    pub async fn shutdown(&self, within: Duration) -> bool {
        let began = Instant::now();
        let mut is_done = true;
        // One after the other, while those of the others go on in the background.
        for backend in self.0.backends.values() {
            let left = within.saturating_sub(began.elapsed());
            is_done &= backend.locks().shutdown(left).await;
        }
        is_done
    }
}

fn unknown(kind: &str, name: &str, hint: &str) -> Error {
    let message = format!("the configuration has no {kind} {}{hint}", quoted(name));
    Error::new(ErrorKind::InvalidConfig, message)
}
