//! The four-letter words, of which servers answer `srvr` unless they are told not to.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use tokio::task::spawn_blocking;

/// Asks a server, on a connection of its own; none if it does not answer this word.
pub(super) async fn srvr(address: String) -> Option<HashMap<String, String>> {
    let answer = spawn_blocking(move || ask(&address, b"srvr")).await;
    let answer = answer.ok()?.ok()?;
    let lines = answer.lines().filter_map(|line| line.split_once(':'));
    let values: HashMap<_, _> = lines
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    values.contains_key("Received").then_some(values)
}

fn ask(address: &str, word: &[u8]) -> io::Result<String> {
    let mut error = io::Error::other("the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.write_all(word)?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                return Ok(answer);
            }
            Err(refused) => error = refused,
        }
    }
    Err(error)
}

const PATIENCE: Duration = Duration::from_secs(2);
