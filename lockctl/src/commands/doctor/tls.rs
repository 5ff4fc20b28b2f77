//! Whether a server that rejects a connection speaks TLS.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use polylock::LockUrl;

/// The first host of the URL that accepts a connection, and whether it answers to TLS.
///
/// Only of services whose clients begin with TLS; the others negotiate it, and say so.
pub(super) async fn first_answer(url: &LockUrl) -> Option<(String, bool)> {
    let port = match url.scheme() {
        "redis" | "redis-cluster" | "rediss" | "redlock" => 6379,
        "redis-sentinel" => 26379,
        "zk" | "zookeeper" => 2181,
        _ => return None,
    };
    let hosts: Vec<_> = url
        .hosts()
        .iter()
        .map(|host| (host.name.clone(), host.port_or(port)))
        .collect();
    let asked = tokio::task::spawn_blocking(move || {
        hosts.into_iter().find_map(|(name, port)| {
            let is_tls = greet(&name, port).ok()?;
            Some((format!("{name}:{port}"), is_tls))
        })
    });
    // The lookup of a name has no limit of its own.
    tokio::time::timeout(GREET_TIMEOUT * 3, asked)
        .await
        .ok()?
        .ok()?
}

/// Begins a handshake with an empty hello, which a server that speaks TLS answers by an alert; fails
/// if there is no connection.
fn greet(name: &str, port: u16) -> io::Result<bool> {
    let mut addresses = (name, port).to_socket_addrs()?;
    let mut stream = addresses
        .find_map(|address| TcpStream::connect_timeout(&address, GREET_TIMEOUT).ok())
        .ok_or(io::ErrorKind::ConnectionRefused)?;
    let mut kind = [0];
    let answer = stream
        .set_read_timeout(Some(GREET_TIMEOUT))
        .and_then(|()| stream.write_all(&EMPTY_HELLO))
        .and_then(|()| stream.read_exact(&mut kind));
    Ok(answer.is_ok() && [ALERT, HANDSHAKE].contains(&kind[0]))
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// A record of the handshake, TLS 1.0 as all first ones, with a hello of no bytes.
const EMPTY_HELLO: [u8; 9] = [HANDSHAKE, 3, 1, 0, 4, 1, 0, 0, 0];

const GREET_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn an_alert_is_the_answer_of_tls() {
        for (answer, is_tls) in [(&[ALERT, 3, 1][..], true), (b"-ERR", false), (b"", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let host = listener.local_addr().unwrap().to_string();
            let server = thread::spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                client.read_exact(&mut [0; EMPTY_HELLO.len()]).unwrap();
                client.write_all(answer).unwrap();
            });
            let url = LockUrl::parse(&format!("redlock://127.0.0.1:1,{host}")).unwrap();
            assert_eq!(first_answer(&url).await, Some((host, is_tls)), "{answer:?}");
            server.join().unwrap();
        }
        let url = LockUrl::parse("redis://127.0.0.1:1").unwrap();
        assert_eq!(first_answer(&url).await, None);
    }
}
