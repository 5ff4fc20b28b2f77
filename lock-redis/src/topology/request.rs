use std::time::Duration;

use redis::{Cmd, Pipeline};

use crate::script::Script;

/// `EVALSHA hash count keys args`.
pub(super) fn by_hash(script: &Script, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
    eval("EVALSHA", script.hash(), keys, args)
}

/// The same with the text, for a server that does not know the hash.
pub(super) fn by_text(script: &Script, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
    eval("EVAL", script.text, keys, args)
}

fn eval(command: &str, script: &str, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
    let size = |parts: &[&[u8]]| parts.iter().map(|part| part.len()).sum::<usize>();
    let size = command.len() + script.len() + 4 + size(keys) + size(args);
    let mut request = Cmd::with_capacity(3 + keys.len() + args.len(), size);
    request.arg(command).arg(script).arg(keys.len());
    for part in keys.iter().chain(args) {
        request.arg(*part);
    }
    request
}

/// Adds the commands that acquire a free lock, in this order: `SET`, the token, and the holder.
///
/// The token counts only if the lock is still held under the same id after the draw. Otherwise an
/// administrator could break the lock before the draw, and the next holder could get a smaller token.
///
/// No token is drawn from a counter that does not exist: it may be lost, and the script that begins it again
/// stays above what was drawn a moment ago.
///
/// `clears` also deletes what earlier draws have left in the counter.
pub(super) fn take(
    requests: &mut Pipeline,
    lock: &[u8],
    tokens: &[u8],
    clears: bool,
    holder: &[u8],
    ttl: Duration,
) {
    let mut set = Cmd::with_capacity(6, lock.len() + holder.len() + 27);
    set.arg("SET").arg(lock).arg(holder);
    set.arg("NX").arg("PX").arg(whole_millis(ttl));
    requests.add_command(set);
    let mut draw = Cmd::with_capacity(8, 26 + tokens.len());
    draw.arg("XADD").arg(tokens).arg("NOMKSTREAM");
    if clears {
        draw.arg("MAXLEN").arg("0");
    }
    draw.arg("*").arg("t").arg("");
    requests.add_command(draw);
    let mut shown = Cmd::with_capacity(4, 11 + lock.len());
    shown.arg("GETRANGE").arg(lock).arg("0").arg("31");
    requests.add_command(shown);
}

/// How many commands [`take`] adds.
pub(super) const TAKE_COMMANDS: usize = 3;

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
