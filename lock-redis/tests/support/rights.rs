//! What a user of the server needs.

/// The commands that the locks send or run in scripts; `docs/backends/redis.md` quotes them.
pub(crate) const COMMANDS: &str = "-@all +hello +ping +select +client|setname \
     +eval +evalsha +get +set +append +del +exists +time +pttl +pexpire +pexpireat +pexpiretime \
     +hget +hset +hdel +hexists +hkeys +zadd +zcard +zrange +zrangebyscore +zrank +zrem +zscore \
     +publish +subscribe +scan +role +info +wait";

/// The rules of a user with this password whose locks begin with `prefix`.
pub(crate) fn user(password: &str, prefix: &str) -> String {
    let keys = format!("~{prefix} ~{{{prefix} ~{{*}}:{{{prefix}");
    format!("on >{password} resetkeys {keys} resetchannels &polylock:* {COMMANDS}")
}
