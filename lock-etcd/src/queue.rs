//! The contenders of a key, and how they are stored. Pure.
//!
//! A contender is a key `PREFIX/KEY/ID`, attached to a lease of etcd; contenders queue in the
//! order of their creation, as those of `etcdctl lock` and of Go's `concurrency.Mutex`.

use std::num::NonZeroU32;

use etcd_client::KeyValue;
use polylock_core::engine::{LeaseId, Queued};
use polylock_core::{FencingToken, Label, LockKey, Mode};

use crate::tokens::token;

/// The beginning of the keys of all contenders of one lock. The name of the lock has no slashes there, so
/// that the contenders of `a/b` are not among those of `a`.
pub(crate) fn directory(prefix: &str, key: &LockKey) -> String {
    format!("{prefix}/{}/", LockKey::escape(key.as_str()))
}

/// The lock and the contender that a key names; `None` if it is not one of a lock.
pub(crate) fn split<'k>(prefix: &str, key: &'k str) -> Option<(LockKey, &'k str)> {
    let name = key.strip_prefix(prefix)?.strip_prefix('/')?;
    let (directory, contender) = name.split_once('/')?;
    Some((LockKey::unescape(directory)?, contender))
}

/// What a contender of this library stores at its key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct EtcdEntry {
    pub(crate) id: LeaseId,
    pub(crate) mode: Mode,
    /// How often another process has adopted it.
    pub(crate) adoptions: u8,
    /// The label of the contender, in its text form.
    pub(crate) label: String,
}

impl EtcdEntry {
    /// `ID&mode=MODE&adoptions=N&LABEL`.
    pub(crate) fn encode(&self) -> String {
        let mode = match self.mode {
            Mode::Shared => "shared".to_owned(),
            Mode::Permit { limit } => limit.to_string(),
            _ => "exclusive".to_owned(),
        };
        let Self {
            id,
            adoptions,
            label,
            ..
        } = self;
        format!("{}&mode={mode}&adoptions={adoptions}&{label}", id.to_hex())
    }

    fn decode(value: &str) -> Option<Self> {
        let (id, rest) = value.split_once("&mode=")?;
        let (mode, rest) = rest.split_once("&adoptions=")?;
        let (adoptions, label) = rest.split_once('&')?;
        let mode = match mode {
            "exclusive" => Mode::Exclusive,
            "shared" => Mode::Shared,
            limit => {
                let limit: NonZeroU32 = limit.parse().ok()?;
                Mode::Permit { limit }
            }
        };
        Some(Self {
            id: LeaseId::from_hex(id)?,
            mode,
            adoptions: adoptions.parse().ok()?,
            label: label.to_owned(),
        })
    }
}

/// The values of all entries with an id are above the first text and below the second.
pub(crate) fn values_of(id: LeaseId) -> (String, String) {
    let id = id.to_hex();
    (format!("{id}&"), format!("{id}'"))
}

/// A contender as etcd has it.
#[derive(Clone, Debug)]
pub(crate) struct EtcdContender {
    /// The key, without the directory.
    pub(crate) name: String,
    /// `None` of another client.
    pub(crate) entry: Option<EtcdEntry>,
    /// What another client stores, or the label.
    text: String,
    pub(crate) create_revision: i64,
    pub(crate) mod_revision: i64,
    pub(crate) lease: i64,
}

impl EtcdContender {
    /// Reads what is stored at a key of this name.
    pub(crate) fn read(name: &str, stored: &KeyValue) -> Self {
        let value = String::from_utf8_lossy(stored.value());
        let entry = EtcdEntry::decode(&value);
        let text = entry.as_ref().map(|entry| entry.label.clone());
        Self {
            name: name.to_owned(),
            entry,
            text: text.unwrap_or_else(|| value.into_owned()),
            create_revision: stored.create_revision(),
            mod_revision: stored.mod_revision(),
            lease: stored.lease(),
        }
    }

    pub(crate) fn id(&self) -> Option<LeaseId> {
        self.entry.as_ref().map(|entry| entry.id)
    }

    pub(crate) fn label(&self) -> Label {
        if self.entry.is_some() {
            return Label::decode(&self.text);
        }
        Label::of_note(&*self.text)
    }

    /// The token that it has, or had before it was handed over inside its process.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        let adoptions = self.entry.as_ref().map_or(0, |entry| entry.adoptions);
        token(self.create_revision, adoptions, 0)
    }
}

impl Queued for EtcdContender {
    fn name(&self) -> &str {
        &self.name
    }

    /// Other clients have exclusive locks only.
    fn mode(&self) -> Mode {
        self.entry
            .as_ref()
            .map_or(Mode::Exclusive, |entry| entry.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(mode: Mode) -> EtcdEntry {
        EtcdEntry {
            id: LeaseId::from_bytes([7; 16]),
            mode,
            adoptions: 3,
            label: "host=a&pid=1".to_owned(),
        }
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let limit = NonZeroU32::MIN.saturating_add(4);
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permit { limit }] {
            let entry = entry(mode);
            let value = entry.encode();
            assert_eq!(EtcdEntry::decode(&value), Some(entry.clone()));
            let (above, below) = values_of(entry.id);
            assert!(value > above && value < below, "{value}");
        }
        let id = "07".repeat(16);
        for foreign in [
            "",
            "host1",
            &id,
            "x&mode=shared&adoptions=0&",
            "&mode=&adoptions=&",
        ] {
            assert_eq!(EtcdEntry::decode(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_contender_of_another_client_is_exclusive() {
        let contender = EtcdContender {
            name: "694d7".to_owned(),
            entry: None,
            text: "host1".to_owned(),
            create_revision: 7,
            mod_revision: 7,
            lease: 1,
        };
        assert_eq!(contender.mode(), Mode::Exclusive);
    }

    #[test]
    fn every_key_has_a_directory_and_every_directory_its_key() {
        for name in [
            "orders",
            "orders/42",
            "a.b:c_d~e-f",
            ".",
            "50%",
            "%2F",
            "é",
            "a b",
        ] {
            let key = LockKey::new(name).unwrap();
            let directory = directory("apps/locks", &key);
            let contender = format!("{directory}694d7");
            assert_eq!(split("apps/locks", &contender), Some((key, "694d7")));
            assert_eq!(directory.matches('/').count(), 3, "{directory}");
        }
        for foreign in [
            "locks/%2f/a",
            "locks/a b/c",
            "locks/=a",
            "locks/%FF/a",
            "lock/a/b",
            "locks//a",
        ] {
            assert_eq!(split("locks", foreign), None, "{foreign}");
        }
        assert!(LockKey::escape("orders/42").starts_with(&LockKey::escape("orders/")));
    }
}
