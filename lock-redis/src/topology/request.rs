use std::time::Duration;

use redis::Cmd;

use super::contract::{Call, Take};

/// `EVALSHA hash count keys args`, or a plain command.
pub(super) fn by_hash(call: Call<'_>) -> Cmd {
    if call.script.text.is_empty() {
        let mut request = redis::cmd(call.script.name);
        request.arg(call.keys).arg(call.args);
        return request;
    }
    request("EVALSHA", call.script.hash(), call)
}

/// The same with the text, for a server that does not know the hash.
pub(super) fn by_text(call: Call<'_>) -> Cmd {
    request("EVAL", call.script.text, call)
}

fn request(command: &str, script: &str, call: Call<'_>) -> Cmd {
    let size = |parts: &[&[u8]]| parts.iter().map(|part| part.len()).sum::<usize>();
    let size = command.len() + script.len() + 4 + size(call.keys) + size(call.args);
    let mut request = Cmd::with_capacity(3 + call.keys.len() + call.args.len(), size);
    request.arg(command).arg(script).arg(call.keys.len());
    for part in call.keys.iter().chain(call.args) {
        request.arg(*part);
    }
    request
}

/// The commands that acquire a free lock, in this order: `SET`, the token, and the holder.
///
/// The token counts only if the lock is held under the same id when it has been drawn. An
/// administrator could break the lock before that, and the next holder draw a smaller one.
pub(super) fn taking(take: Take<'_>) -> [Cmd; 3] {
    let ttl = whole_millis(take.ttl);
    let size = take.lock.len() + take.holder.len() + 27;
    let mut set = Cmd::with_capacity(6, size);
    set.arg("SET").arg(take.lock).arg(take.holder);
    set.arg("NX").arg("PX").arg(ttl);
    let mut draw = Cmd::with_capacity(7, 16 + take.tokens.len());
    draw.arg("XADD").arg(take.tokens).arg("MAXLEN").arg("0");
    draw.arg("*").arg("t").arg("");
    let mut holder = Cmd::with_capacity(4, 11 + take.lock.len());
    holder.arg("GETRANGE").arg(take.lock).arg("0").arg("31");
    [set, draw, holder]
}

/// Waits for replicas to have what was written before.
pub(super) fn wait((acks, within): (u32, Duration)) -> Cmd {
    let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut wait = redis::cmd("WAIT");
    wait.arg(acks).arg(millis);
    wait
}

/// Rounded up: a lease may last longer than asked for, and never shorter.
pub(crate) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
