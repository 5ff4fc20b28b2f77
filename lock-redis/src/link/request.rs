use redis::Cmd;

use super::Call;

/// `EVALSHA hash count keys args`.
pub(super) fn by_hash(call: Call<'_>) -> Cmd {
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
