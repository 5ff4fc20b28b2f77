//! The environment variables of the command.

use std::time::{Duration, SystemTime};

use polylock::{FencingToken, Label};

use crate::backend::BackendUrl;
use crate::held_keys::{self, HeldKeys};
use crate::output::unix_ms;

/// A variable, with `None` for one that must not be inherited.
pub(crate) type Variable = (&'static str, Option<String>);

#[derive(Debug)]
pub(crate) struct LockVariables<'a> {
    /// The locks with their tokens, in the order of their keys.
    pub(crate) locks: Vec<(&'a str, Option<FencingToken>)>,
    /// Time until the first of the leases ends; `None` without limit.
    pub(crate) valid_for: Option<Duration>,
    /// Length of the leases; `None` where locks have none.
    pub(crate) ttl: Option<Duration>,
    pub(crate) backend: &'a BackendUrl,
    /// Name of the backend, such as `sqlite`.
    pub(crate) kind: &'static str,
    pub(crate) label: &'a Label,
}

impl LockVariables<'_> {
    /// All of the variables; `env` looks up those of this process.
    pub(crate) fn variables(
        &self,
        env: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Vec<Variable> {
        let number = |name| env(name).and_then(|value| value.to_str()?.parse::<u32>().ok());
        let depth = number("LOCK_DEPTH").unwrap_or(0).saturating_add(1);
        let held = HeldKeys::read(env(held_keys::VARIABLE).as_deref());
        let held = held.and(self.backend, self.locks.iter().map(|(key, _)| *key));
        let (first, token) = self
            .locks
            .first()
            .map_or(("", None), |(key, token)| (*key, *token));
        let deadline = self.valid_for.map(|left| unix_ms(SystemTime::now() + left));
        let keys: Vec<_> = self.locks.iter().map(|(key, _)| *key).collect();
        // Variables without a value are listed too, so that those of an outer lockctl are not inherited.
        vec![
            ("LOCK_BACKEND", Some(self.kind.to_owned())),
            ("LOCK_DEADLINE_UNIX_MS", deadline.map(|ms| ms.to_string())),
            ("LOCK_DEPTH", Some(depth.to_string())),
            ("LOCK_FENCING_TOKEN", token.map(|token| token.to_string())),
            ("LOCK_FENCING_TOKENS", self.tokens()),
            ("LOCK_HELD", Some("1".to_owned())),
            (held_keys::VARIABLE, Some(held.to_json())),
            ("LOCK_KEY", Some(first.to_owned())),
            // Keys have no line breaks.
            ("LOCK_KEYS", Some(keys.join("\n"))),
            ("LOCK_NAMESPACE", Some(self.backend.namespace.clone())),
            (
                "LOCK_OWNER",
                Some(format!("{}:{}", self.label.host(), self.label.pid())),
            ),
            (
                "LOCK_TTL_MS",
                self.ttl.map(|ttl| ttl.as_millis().to_string()),
            ),
        ]
    }

    /// One `key=token` for each line, to be split at the last `=`.
    fn tokens(&self) -> Option<String> {
        let locks = self.locks.iter();
        let lines = locks.map(|(key, token)| Some(format!("{key}={}", (*token)?)));
        Some(lines.collect::<Option<Vec<_>>>()?.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn what_is_unknown_is_not_inherited_from_outside() {
        let line = ["lockctl", "--backend", "memory:", "list"];
        let backend = BackendUrl::choose(&Cli::parse_from(line).global, |_| None).unwrap();
        let facts = LockVariables {
            locks: vec![("a", None)],
            valid_for: None,
            ttl: None,
            backend: &backend,
            kind: "memory",
            label: &Label::decode("host=etl&pid=7"),
        };
        let variables = facts.variables(|_| Some("1".into()));
        for name in [
            "LOCK_FENCING_TOKEN",
            "LOCK_FENCING_TOKENS",
            "LOCK_DEADLINE_UNIX_MS",
            "LOCK_TTL_MS",
        ] {
            assert!(variables.contains(&(name, None)), "{name}");
        }
    }
}
