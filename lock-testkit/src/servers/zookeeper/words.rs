use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::network::NetworkHost;
use crate::servers::host::{address, near};

/// Where a server takes words: a port of 127.0.0.1, or of its host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Door<'a> {
    pub(super) host: Option<&'a NetworkHost>,
    pub(super) port: u16,
}

/// Asks with one of the four-letter words, on a connection of its own, and waits for up to 5 s.
pub(super) fn four_letter(door: Door<'_>, word: &str) -> io::Result<String> {
    ask(door, word, Duration::from_secs(5))
}

/// The same, with so much time for connecting and so much for each part of the answer.
pub(super) fn ask(door: Door<'_>, word: &str, patience: Duration) -> io::Result<String> {
    let address = SocketAddr::from((address(door.host), door.port));
    // A host reaches itself through every fault.
    let mut stream = near(door.host, || TcpStream::connect_timeout(&address, patience))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// One value of `mntr`, where it is a whole number.
pub(super) fn value(mntr: &str, name: &str) -> Option<i64> {
    mntr.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'))
        .and_then(|value| value.trim().parse().ok())
}

/// The part of the server, as `srvr` tells it: `standalone`, `leader` or `follower`; none while it
/// does not serve.
pub(super) fn mode(srvr: &str) -> Option<String> {
    let mode = srvr.lines().find_map(|line| line.strip_prefix("Mode: "));
    mode.map(str::to_owned)
}
