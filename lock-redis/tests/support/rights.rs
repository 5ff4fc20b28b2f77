//! What a user of the server needs.

/// The commands that the locks send, or run in scripts.
pub(crate) const COMMANDS: &str = "+hello +eval +evalsha +get +set +getrange +del +time +pttl \
     +pexpire +pexpireat +xadd +xdel +xrange +hget +hset +hdel +hkeys +zadd +zcard +zrange \
     +zrangebyscore +zrem +zscore +publish +subscribe";

/// Those of the administration, which lists what is held.
pub(crate) const LIST: &str = "+scan";

/// Those of the checks at the start; without them there is a warning less.
pub(crate) const CHECKS: &str = "+info +config|get";

/// The rules of a user with this password whose locks begin with `prefix`.
pub(crate) fn user(password: &str, prefix: &str) -> String {
    let namespace = prefix
        .split_once(':')
        .map_or("", |(namespace, _)| namespace);
    let keys = format!(
        "~{prefix} ~{{{prefix} ~{{*}}:{{{prefix} ~{{{namespace}}}:tokens ~{{*}}:{namespace}:tokens"
    );
    format!(
        "on >{password} resetkeys {keys} resetchannels &polylock:* -@all {COMMANDS} {LIST} {CHECKS}"
    )
}
