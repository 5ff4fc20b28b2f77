//! What a user of the server needs.

/// The commands that the locks send, or run in scripts.
pub(crate) const COMMANDS: &str = "+hello +eval +evalsha +get +set +append +del +exists +time \
     +pttl +pexpire +pexpireat +pexpiretime +hget +hset +hdel +hexists +hkeys +zadd +zcard \
     +zrange +zrangebyscore +zrank +zrem +zscore +publish +subscribe";

/// Those of the administration, which lists what is held.
pub(crate) const LIST: &str = "+scan";

/// Those of the checks at the start; without them there is a warning less.
pub(crate) const CHECKS: &str = "+info +config|get";

/// The rules of a user with this password whose locks begin with `prefix`.
pub(crate) fn user(password: &str, prefix: &str) -> String {
    let keys = format!("~{prefix} ~{{{prefix} ~{{*}}:{{{prefix}");
    format!(
        "on >{password} resetkeys {keys} resetchannels &polylock:* -@all {COMMANDS} {LIST} {CHECKS}"
    )
}
