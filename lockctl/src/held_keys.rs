//! Locks that an outer `lockctl` holds, so that a nested one does not wait for it forever.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;

use polylock::LockKey;
use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::backend::BackendUrl;
use crate::child::parent_of;
use crate::exit::Exit;
use crate::output::{CommandFailure, Escaped};

/// Name of the variable with the locks that outer commands hold.
pub(crate) const VARIABLE: &str = "LOCK_HELD_KEYS";

/// The locks of all outer commands, outermost first, as `LOCK_HELD_KEYS` has them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct HeldKeys(Vec<HeldKey>);

/// One lock of one outer command, on one backend.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct HeldKey {
    key: String,
    namespace: String,
    /// Which locks of which service they are, as a hash.
    backend: String,
    /// The `lockctl` that holds it.
    pid: i32,
}

impl HeldKeys {
    /// Reads the variable; what is not understood counts as nothing.
    pub(crate) fn read(variable: Option<&OsStr>) -> Self {
        let text = variable.and_then(OsStr::to_str);
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// The value of the variable for a command of this process that holds `keys` as well.
    pub(crate) fn and<'k>(
        mut self,
        backend: &BackendUrl,
        keys: impl IntoIterator<Item = &'k str>,
    ) -> Self {
        let pid = getpid().as_raw_nonzero().get();
        let stores = stores_of(backend);
        for key in keys {
            self.0.extend(stores.iter().map(|(namespace, id)| HeldKey {
                key: key.to_owned(),
                namespace: namespace.clone(),
                backend: id.clone(),
                pid,
            }));
        }
        self
    }

    /// The text of the variable.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("BUG: strings and numbers are JSON")
    }
}

/// Fails if an outer command that waits for this one holds one of the keys.
pub(crate) fn refuse_held<'k>(
    backend: &BackendUrl,
    keys: impl IntoIterator<Item = &'k str>,
) -> Result<(), CommandFailure> {
    let HeldKeys(outer) = HeldKeys::read(env::var_os(VARIABLE).as_deref());
    if outer.is_empty() {
        return Ok(());
    }
    let stores = stores_of(backend);
    for key in keys {
        // What the service sees: a key with a colon may look like one in a namespace.
        let is_this = |held: &HeldKey| {
            let on_server = stored(&held.namespace, &held.key);
            let mut stores = stores.iter();
            stores.any(|(namespace, id)| *id == held.backend && stored(namespace, key) == on_server)
        };
        let mut outer = outer.iter();
        let held = outer.find(|held| is_this(held) && waits_for_this_process(held.pid));
        if let Some(held) = held {
            let message = format!(
                "you already hold {} (outer lockctl pid {}), waiting for it would never end",
                Escaped(key),
                held.pid
            );
            return Err(CommandFailure::new(Exit::Usage, message)
                .with_hint("run the command without lockctl here, or use another key"));
        }
    }
    Ok(())
}

/// Fails if `LOCK_HELD_KEYS`, the longest variable of the command, would be longer than Linux allows.
pub(crate) fn refuse_too_many(
    backend: &BackendUrl,
    keys: &[LockKey],
) -> Result<(), CommandFailure> {
    let keys: BTreeSet<_> = keys.iter().map(LockKey::as_str).collect();
    let count = keys.len();
    let outer = HeldKeys::read(env::var_os(VARIABLE).as_deref());
    let length = outer.and(backend, keys).to_json().len();
    if !cfg!(target_os = "linux") || length <= MAX_LENGTH {
        return Ok(());
    }
    let message = format!(
        "too many keys for one command: with {count} more, {VARIABLE} would have {length} bytes, and the max is {MAX_LENGTH}"
    );
    Err(CommandFailure::new(Exit::Usage, message)
        .with_hint("use fewer or shorter keys, or one key for all of them"))
}

/// The max length of a value: `MAX_ARG_STRLEN` of Linux less the name, the `=` and the zero byte.
const MAX_LENGTH: usize = 128 * 1024 - VARIABLE.len() - 2;

fn stored(namespace: &str, key: &str) -> String {
    match namespace {
        "" => key.to_owned(),
        _ => format!("{namespace}:{key}"),
    }
}

/// The namespace and the id of each backend that a lock is acquired on.
fn stores_of(backend: &BackendUrl) -> Vec<(String, String)> {
    let stores = backend.stores().into_iter();
    stores
        .map(|(namespace, id)| (namespace, format!("{id:016x}")))
        .collect()
}

/// Whether the process is an ancestor of this one; a daemon that outlives its `lockctl`, or is no
/// descendant of it any more, may well wait for the lock.
fn waits_for_this_process(pid: i32) -> bool {
    let mut at = getpid().as_raw_nonzero().get();
    while at > 1 {
        match parent_of(at) {
            Some(parent) if parent == pid => return true,
            Some(parent) => at = parent,
            // Other users' processes may be hidden, and not every system has /proc.
            None => {
                let pid = Pid::from_raw(pid.max(0));
                return pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_survives_its_text() {
        let held = HeldKeys(vec![HeldKey {
            key: "a=\"b\"\u{202e}".to_owned(),
            namespace: String::new(),
            backend: "0f".to_owned(),
            pid: 7,
        }]);
        let text = held.to_json();
        assert_eq!(HeldKeys::read(Some(OsStr::new(&text))), held);
        assert_eq!(
            HeldKeys::read(Some(OsStr::new("{not json"))),
            HeldKeys::default()
        );
        assert_eq!(HeldKeys::read(None), HeldKeys::default());
    }
}
