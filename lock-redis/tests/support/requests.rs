use lock_testkit::proxy::Command;
use lock_testkit::servers::RedisServer;
use polylock_core::memory::Request;

use self::script::{ACQUIRE, ADOPT, AGREE, RELEASE, RENEW, Script, VOTE, WITHDRAW};

#[allow(dead_code, reason = "some scripts are none of these requests")]
#[path = "../../src/script.rs"]
mod script;

static SCRIPTS: [(&Script, Request); 7] = [
    (&ACQUIRE, Request::Acquire),
    (&VOTE, Request::Acquire),
    (&AGREE, Request::Acquire),
    (&ADOPT, Request::Adopt),
    (&RENEW, Request::Renew),
    (&RELEASE, Request::Release),
    (&WITHDRAW, Request::Release),
];

/// Has a server know the scripts: a fault would meet a request that is refused and sent again.
pub(crate) fn load_scripts(server: &RedisServer) {
    for (script, _) in &SCRIPTS {
        server.command(&["SCRIPT", "LOAD", script.text]);
    }
}

/// Which request a command is.
pub(crate) fn kind_of(command: &Command) -> Option<Request> {
    // A draw of a token has the field `t`.
    let joins = command.is("XADD") && command.has("w");
    if joins || command.is("SET") && command.has("NX") {
        return Some(Request::Acquire);
    }
    if !command.is("EVALSHA") && !command.is("EVAL") {
        return None;
    }
    let sent = command.arg(1);
    let is_sent = |script: &Script| sent == script.hash() || sent == script.text;
    let known = SCRIPTS.iter().find(|(script, _)| is_sent(script));
    known.map(|(_, request)| *request)
}

pub(crate) fn is_kind(wanted: Request) -> impl Fn(&Command) -> bool {
    move |command| kind_of(command) == Some(wanted)
}
