//! The tables of a configuration file. These structs are the only list of its keys: the reader, the
//! JSON schema and the messages about unknown keys come from them.

use std::fmt;
use std::time::Duration;

use lock_core::{LockUrl, Wait};
#[cfg(feature = "config-schema")]
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::entry::{Entry, Table, Tables};
use super::origin::Found;
use super::requirement::Requirement;
use super::settings::LockSettings;
use super::value::MaxHold;

/// Backends and classes of locks for polylock.
#[derive(Default, Deserialize)]
#[cfg_attr(feature = "config-schema", derive(JsonSchema))]
#[cfg_attr(
    feature = "config-schema",
    schemars(deny_unknown_fields, rename = "polylock")
)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct File {
    /// The backends by name.
    pub(super) backend: Entry<Tables<BackendTable>>,
    /// The classes of locks by name.
    pub(super) class: Entry<Tables<ClassTable>>,
    /// The backend of requests that name none. Default: the only one, apart from those that are
    /// migrated from; or the one named "default".
    pub(super) default: Entry<String>,
    /// Goes before every key of URLs that name no namespace.
    pub(super) namespace: Entry<String>,
}

/// A lock service. It has one of url, url-env and url-file.
#[derive(Default, Deserialize)]
#[cfg_attr(feature = "config-schema", derive(JsonSchema))]
#[cfg_attr(
    feature = "config-schema",
    schemars(deny_unknown_fields, rename = "Backend")
)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct BackendTable {
    /// Max time that a lock is renewed. Default: 1h.
    pub(super) max_hold: Entry<MaxHold>,
    /// The backend that each lock is acquired on as well, while a fleet migrates from there.
    pub(super) migrate_from: Entry<String>,
    /// Min time that a lock stays held, even if it is released sooner. Default: 0s.
    pub(super) min_hold: Entry<Duration>,
    /// Parameters of the URL.
    pub(super) options: Entry<Vec<Parameter>>,
    /// The lease, 1s to 24h; renewed every third of it. Default: 30s.
    pub(super) ttl: Entry<Duration>,
    /// Where the service is, such as redis://cache.
    pub(super) url: Entry<SecretString>,
    /// The environment variable that has the URL.
    pub(super) url_env: Entry<String>,
    /// The file that has the URL; relative to the directory of this one.
    pub(super) url_file: Entry<String>,
    /// How long to wait for a lock that another client holds. Default: 30s.
    pub(super) wait: Entry<Wait>,
}

/// A class of locks.
#[derive(Default, Deserialize)]
#[cfg_attr(feature = "config-schema", derive(JsonSchema))]
#[cfg_attr(
    feature = "config-schema",
    schemars(deny_unknown_fields, rename = "Class")
)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct ClassTable {
    /// The backend that has the locks. Default: the default one.
    pub(super) backend: Entry<String>,
    /// Max time that a lock is renewed. Default: the backend's.
    pub(super) max_hold: Entry<MaxHold>,
    /// Min time that a lock stays held, even if it is released sooner. Default: the backend's.
    pub(super) min_hold: Entry<Duration>,
    /// What the backend must have.
    pub(super) require: Entry<Vec<Found<Requirement>>>,
    /// The lease, 1s to 24h; renewed every third of it. Default: the backend's.
    pub(super) ttl: Entry<Duration>,
    /// How long to wait for a lock that another client holds. Default: the backend's.
    pub(super) wait: Entry<Wait>,
}

impl Table for File {
    const KIND: &'static str = "";
    const HEADERS: &'static str = "tables";
}

impl Table for BackendTable {
    const KIND: &'static str = "backend";
    const HEADERS: &'static str = "tables [backend.NAME]";
}

impl Table for ClassTable {
    const KIND: &'static str = "class";
    const HEADERS: &'static str = "tables [class.NAME]";
}

impl BackendTable {
    pub(super) fn lock_settings(&self) -> LockSettings {
        LockSettings {
            max_hold: self.max_hold.found(),
            min_hold: self.min_hold.found(),
            ttl: self.ttl.found(),
            wait: self.wait.found(),
        }
    }
}

impl ClassTable {
    pub(super) fn lock_settings(&self) -> LockSettings {
        LockSettings {
            max_hold: self.max_hold.found(),
            min_hold: self.min_hold.found(),
            ttl: self.ttl.found(),
            wait: self.wait.found(),
        }
    }
}

/// A key of `[backend.NAME.options]`, whose value may be a password.
#[derive(Clone)]
pub(super) struct Parameter {
    pub(super) name: Found<String>,
    pub(super) value: SecretString,
}

impl Parameter {
    /// The value for people.
    pub(super) fn shown(&self) -> &str {
        match LockUrl::shows(&self.name.value) {
            true => self.value.expose_secret(),
            false => "***",
        }
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?}", self.name.value, self.shown())
    }
}

/// The hint for a key that people look for and that does not exist.
pub(super) fn advice(key: &str) -> Option<&'static str> {
    Some(match key.to_ascii_lowercase().replace('_', "-").as_str() {
        "renew" | "renew-every" | "renew-interval" | "renewal" | "renewal-interval" => {
            "a lease is renewed every third of its ttl, which cannot be changed; set the ttl"
        }
        "driver" | "kind" | "scheme" | "type" => "the scheme of the url selects the backend",
        "mysql" | "postgres" | "redis" | "sql" | "sqlite" | "zk" | "zookeeper" => {
            "parameters of a backend belong in its table \"options\""
        }
        "host" | "password" | "port" | "user" | "username" => "it is part of the url",
        "classes" | "lock" | "locks" => "a class of locks is a table [class.NAME]",
        "backends" | "profile" | "profiles" => "a backend is a table [backend.NAME]",
        _ => return None,
    })
}
