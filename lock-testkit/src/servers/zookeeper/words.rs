use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Asks with one of the four-letter words, on a connection of its own.
pub(super) fn four_letter(port: u16, word: &str) -> io::Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
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

/// The part of the server, as `srvr` tells it: `standalone`, `leader` or `follower`.
pub(super) fn mode(port: u16) -> io::Result<Option<String>> {
    let srvr = four_letter(port, "srvr")?;
    let mode = srvr.lines().find_map(|line| line.strip_prefix("Mode: "));
    Ok(mode.map(str::to_owned))
}

const PATIENCE: Duration = Duration::from_secs(5);
