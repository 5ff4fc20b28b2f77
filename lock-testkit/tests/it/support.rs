use std::fs;
use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use lock_testkit::servers::Reply;

/// A process and what it has started.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("it runs");
    let children = children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a number"));
    children.chain([pid]).collect()
}

pub(crate) fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// Neither stopped nor at its end.
pub(crate) fn is_running(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'T' | 'Z'))
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

pub(crate) fn eventually(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What a client sees of a connection that was cut.
pub(crate) const GONE: [ErrorKind; 3] = [
    ErrorKind::BrokenPipe,
    ErrorKind::ConnectionReset,
    ErrorKind::UnexpectedEof,
];

pub(crate) fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

/// How long a server or a connection of hosts has to be silent to be cut off.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// How long what is not dropped may take.
pub(crate) const SOON: Duration = Duration::from_secs(30);
