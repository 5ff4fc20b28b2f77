//! Keys of other programs in place of a lock or a record.

use std::sync::Arc;

use redis::Value;

use crate::error::{RedisCause, RedisFailure, Refusal};
use crate::reply;
use crate::script::TYPES;
use crate::server::Server;
use crate::topology::Call;

impl Server {
    /// Adds to a wrong-type error which key is of another type, and how to remove it. `keys` are the
    /// four keys of a lock, or the key of its record.
    pub(crate) async fn explained<T>(
        &self,
        keys: &[&[u8]],
        answer: Result<T, RedisFailure>,
    ) -> Result<T, RedisFailure> {
        match answer {
            Err(failure) if failure.refusal() == Some(Refusal::WrongType) => {
                Err(Box::pin(self.explain(keys, failure)).await)
            }
            answer => answer,
        }
    }

    async fn explain(&self, keys: &[&[u8]], failure: RedisFailure) -> RedisFailure {
        let RedisCause::Refused { server, .. } = &failure.cause else {
            return failure;
        };
        let types = self.topology.call(Call::script(&TYPES, keys, &[])).await;
        // Without the right to query types, only the wrong type is known.
        let Ok(Value::Array(types)) = types.map(|done| done.value) else {
            return failure;
        };
        let types: Vec<_> = types.iter().filter_map(reply::text).collect();
        let Some((key, what)) = foreign(keys, &types) else {
            return failure;
        };
        RedisFailure {
            outcome_unknown: failure.outcome_unknown,
            ..self.foreign(server, key, &what)
        }
    }

    /// An error that names the value of another program at a key, and how to remove it.
    pub(crate) fn foreign(&self, server: &Arc<str>, key: &[u8], what: &str) -> RedisFailure {
        let remove = self.remove(server, key);
        let key = String::from_utf8_lossy(key);
        let says = format!(
            "has {what} at {key:?}, which is not written by polylock and is left as it is; if nobody \
             needs it, remove it: {remove}"
        );
        let server = Arc::clone(server);
        RedisCause::Foreign { server, says }.into()
    }

    /// The command that removes a key.
    fn remove(&self, server: &str, key: &[u8]) -> String {
        let place = match server.rsplit_once(':') {
            Some((host, port)) => format!("-h {} -p {port}", host.trim_matches(['[', ']'])),
            None => format!("-s {}", quoted(server)),
        };
        let database = match self.database {
            0 => String::new(),
            number => format!(" -n {number}"),
        };
        let key = quoted(&String::from_utf8_lossy(key));
        format!("redis-cli {place}{database} UNLINK {key}")
    }
}

/// The first key that is not part of a lock, and the type of its value.
fn foreign<'k>(keys: &[&'k [u8]], types: &[&str]) -> Option<(&'k [u8], String)> {
    let is_foreign = |at: &usize| match (*at, types[*at]) {
        (_, "none") => false,
        // The lock itself, its counter, its queue, its notes.
        (0, of_type) => !["string", "zset"].contains(&of_type),
        (1, of_type) if keys[1].ends_with(b":fence") => of_type != "string",
        (3, of_type) => of_type != "hash",
        (_, of_type) => of_type != "stream",
    };
    let other = (0..keys.len().min(types.len())).find(is_foreign);
    // A sorted set may lack the mark of a lock.
    let unmarked = || (types.first() == Some(&"zset")).then_some(0);
    let at = other.or_else(unmarked)?;
    let what = match types[at] {
        "zset" => "a sorted set".to_owned(),
        "ReJSON-RL" => "a JSON document".to_owned(),
        of_type => format!("a {of_type}"),
    };
    Some((keys[at], what))
}

/// One word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_lock_has_is_found() {
        let keys: [&[u8]; 4] = [b"k", b"{k}:fence", b"{k}:waiters", b"{k}:notes"];
        let found = |types| foreign(&keys, types).map(|(key, what)| (key.to_vec(), what));
        let is = |key: &[u8], what: &str| Some((key.to_vec(), what.to_owned()));
        assert_eq!(found(&["list", "none", "none", "none"]), is(b"k", "a list"));
        let fence = found(&["none", "hash", "none", "none"]);
        assert_eq!(fence, is(b"{k}:fence", "a hash"));
        let set = found(&["zset", "string", "stream", "hash"]);
        assert_eq!(set, is(b"k", "a sorted set"));
        assert_eq!(found(&["string", "string", "stream", "hash"]), None);
        assert_eq!(found(&["none", "none", "none", "none"]), None);
    }

    #[test]
    fn a_key_is_one_word_of_a_shell() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
