//! Finds out why no server opens a session, which the client does not report.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::spawn_blocking;

use crate::config::ZooKeeperConfig;
use crate::error::ZkFailure;
use crate::tls::ZkCertificates;

/// The replies of all servers to a probe that needs no session.
#[derive(Debug)]
pub(crate) struct ConnectAnswers(pub(crate) Vec<(String, ConnectAnswer)>);

/// The reply of one server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ConnectAnswer {
    Closed {
        tls: bool,
    },
    Electing,
    /// It accepts connections; reading its reply needs the TLS options of a connector.
    Reachable,
    ReadOnly,
    Serving,
    Silent,
    /// Another kind of server, and its reply.
    Stranger(String),
    Unreachable(String),
    Untrusted(String),
}

/// Asks every server, each within this time.
pub(crate) async fn diagnose_connect(
    config: &ZooKeeperConfig,
    certificates: Option<&ZkCertificates>,
    within: Duration,
) -> ConnectAnswers {
    let answers = config.hosts.iter().map(async |(host, port)| {
        let address = address(host, *port);
        let (host, port) = (host.clone(), *port);
        let certificates = certificates.cloned();
        let asked = spawn_blocking(move || ask(&host, port, certificates.as_ref(), within));
        // Names are looked up without a limit.
        let answer = match tokio::time::timeout(within, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => ConnectAnswer::Silent,
        };
        (address, answer)
    });
    ConnectAnswers(join_all(answers).await)
}

/// The address as in a URL.
pub(crate) fn address(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

impl ConnectAnswers {
    fn are_all(&self, is_so: impl Fn(&ConnectAnswer) -> bool) -> bool {
        self.0.iter().all(|(_, answer)| is_so(answer))
    }

    /// Whether a retry can help soon.
    pub(crate) fn may_change(&self) -> bool {
        use ConnectAnswer::{Stranger, Unreachable, Untrusted};
        !self.are_all(|answer| matches!(answer, Stranger(_) | Unreachable(_) | Untrusted(_)))
    }

    /// Whether servers answer, and none of them is ZooKeeper.
    pub(crate) fn are_strangers(&self) -> bool {
        self.are_all(|answer| matches!(answer, ConnectAnswer::Stranger(_)))
    }
}

impl From<ConnectAnswers> for ZkFailure {
    fn from(answers: ConnectAnswers) -> Self {
        let said = answers.0.iter();
        let said = said.map(|(address, answer)| format!("{address} {answer}"));
        let said = said.collect::<Vec<_>>().join("; ");
        match answers.are_all(|answer| matches!(answer, ConnectAnswer::Untrusted(_))) {
            true => Self::Untrusted(said),
            false => Self::NoSession(said),
        }
    }
}

impl fmt::Display for ConnectAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { tls: false } => f.write_str(
                "closes connections: it has maxClientCnxns of them, takes TLS only, or is no \
                 ZooKeeper",
            ),
            Self::Closed { tls: true } => f.write_str(
                "closes connections: it has maxClientCnxns of them, or takes no TLS at this port",
            ),
            Self::Electing => f.write_str("waits for a majority of its ensemble to elect a leader"),
            Self::Reachable => f.write_str(
                "is reachable, and opens no session by the TLS options of the connector: its log says why",
            ),
            Self::ReadOnly => {
                f.write_str("is cut off from the majority of its ensemble and takes no writes")
            }
            Self::Serving => f.write_str("serves, and opens none: its log says why"),
            Self::Silent => f.write_str("does not answer"),
            Self::Stranger(what) => write!(f, "is another kind of server, which says {what:?}"),
            Self::Unreachable(why) => write!(f, "cannot be reached ({why})"),
            Self::Untrusted(why) => write!(f, "and this client do not trust each other ({why})"),
        }
    }
}

fn ask(
    host: &str,
    port: u16,
    certificates: Option<&ZkCertificates>,
    within: Duration,
) -> ConnectAnswer {
    let stream = match connect(host, port, within) {
        Ok(stream) => stream,
        Err(error) => return refused(&error, certificates.is_some()),
    };
    let reply = match certificates {
        None => srvr(stream),
        Some(certificates) => certificates.dress(host, stream).and_then(srvr),
    };
    read(reply, certificates.is_some())
}

/// What it means that a connection cannot be made. A server at its limit accepts it and closes it at once.
fn refused(error: &io::Error, tls: bool) -> ConnectAnswer {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};

    match error.kind() {
        BrokenPipe | ConnectionAborted | ConnectionReset => ConnectAnswer::Closed { tls },
        _ => ConnectAnswer::Unreachable(error.to_string()),
    }
}

fn connect(host: &str, port: u16, within: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, within) {
            Ok(stream) => {
                stream.set_read_timeout(Some(within))?;
                stream.set_write_timeout(Some(within))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The only word that servers answer by default.
fn srvr(mut stream: impl Read + Write) -> io::Result<String> {
    // The fifth byte shows a TLS-only server that this is not TLS.
    stream.write_all(b"srvr\n")?;
    stream.flush()?;
    let mut reply = Vec::new();
    let mut chunk = [0; 512];
    // Other servers leave the connection open.
    while reply.len() < 4_096 && stranger(&reply).is_none() {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => reply.extend_from_slice(&chunk[..count]),
            Err(error) if reply.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

/// The reply of another kind of server; `None` for ZooKeeper, TLS, and no reply.
fn stranger(reply: &[u8]) -> Option<String> {
    let ours: [&[u8]; 3] = [b"Zookeeper version", b"This ZooKeeper", b"srvr is not"];
    let is_ours = |text: &&[u8]| text.starts_with(reply) || reply.starts_with(text);
    let is_tls = matches!(reply, [21 | 22] | [21 | 22, 3, ..]);
    if ours.iter().any(is_ours) || is_tls {
        return None;
    }
    let parts = reply.split(|byte| !matches!(byte, b' '..=b'~'));
    let longest = parts.max_by_key(|part| part.len())?;
    Some(String::from_utf8_lossy(longest).into_owned())
}

fn read(reply: io::Result<String>, tls: bool) -> ConnectAnswer {
    match reply {
        Ok(text) if text.contains("not currently serving requests") => ConnectAnswer::Electing,
        Ok(text) if text.contains("Mode: read-only") => ConnectAnswer::ReadOnly,
        Ok(text) if text.contains("Mode: ") || text.contains("srvr is not executed") => {
            ConnectAnswer::Serving
        }
        Ok(text) => match stranger(text.as_bytes()) {
            Some(what) => ConnectAnswer::Stranger(what),
            None => ConnectAnswer::Closed { tls },
        },
        Err(error) => match error.kind() {
            // rustls wraps its reasons like this.
            io::ErrorKind::InvalidData => ConnectAnswer::Untrusted(error.to_string()),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ConnectAnswer::Silent,
            io::ErrorKind::Unsupported => ConnectAnswer::Reachable,
            _ => ConnectAnswer::Closed { tls },
        },
    }
}

#[cfg(test)]
mod tests {
    use polylock_core::{Error, ErrorKind};

    use super::ConnectAnswer::{
        Closed, Electing, Reachable, ReadOnly, Serving, Stranger, Unreachable, Untrusted,
    };
    use super::*;

    #[test]
    fn what_a_server_says_is_read() {
        let ok = |text: &str| Ok(text.to_owned());
        let serving = "Zookeeper version: 3.8.0-, built on 2023\nMode: leader\nNode count: 5\n";
        let hidden = "srvr is not executed because it is not in the whitelist.\n";
        let electing = "This ZooKeeper instance is not currently serving requests\n";
        let read_only = "Zookeeper version: 3.8.0\nMode: read-only\n";
        for (reply, answer) in [
            (ok(serving), Serving),
            (ok(hidden), Serving),
            (ok(electing), Electing),
            (ok(read_only), ReadOnly),
            (ok(""), Closed { tls: false }),
            (ok("\u{15}\u{3}\u{3}"), Closed { tls: false }),
            (
                ok("HTTP/1.1 400 Bad Request\r\nServer: x"),
                Stranger("HTTP/1.1 400 Bad Request".to_owned()),
            ),
            (
                ok("J\0\0\0\n10.11.6-MariaDB\0"),
                Stranger("10.11.6-MariaDB".to_owned()),
            ),
            (Err(io::ErrorKind::Unsupported.into()), Reachable),
            (
                Err(io::ErrorKind::ConnectionReset.into()),
                Closed { tls: false },
            ),
        ] {
            assert_eq!(read(reply, false), answer);
        }
    }

    #[test]
    fn a_server_that_closes_a_connection_at_once_is_there() {
        for (kind, is_there) in [
            (io::ErrorKind::BrokenPipe, true),
            (io::ErrorKind::ConnectionAborted, true),
            (io::ErrorKind::ConnectionReset, true),
            (io::ErrorKind::ConnectionRefused, false),
            (io::ErrorKind::HostUnreachable, false),
            (io::ErrorKind::TimedOut, false),
        ] {
            let answers = ConnectAnswers(vec![("a:1".to_owned(), refused(&kind.into(), false))]);
            assert_eq!(answers.may_change(), is_there, "{kind}");
            let says = ZkFailure::from(answers).to_string();
            assert_eq!(says.contains("maxClientCnxns"), is_there, "{says}");
        }
    }

    #[test]
    fn servers_that_are_not_there_are_not_asked_again() {
        let gone = || Unreachable("refused".to_owned());
        let unknown = || Untrusted("UnknownIssuer".to_owned());
        let cases = [
            (vec![gone(), gone()], false, ErrorKind::Unavailable),
            (vec![gone(), Electing], true, ErrorKind::Unavailable),
            (vec![gone(), unknown()], false, ErrorKind::Unavailable),
            (vec![unknown(), unknown()], false, ErrorKind::Denied),
            (vec![ReadOnly], true, ErrorKind::Unavailable),
        ];
        for (said, may_change, kind) in cases {
            let names = ["a:1", "b:1"].into_iter().map(str::to_owned);
            let answers = ConnectAnswers(names.zip(said).collect());
            assert_eq!(answers.may_change(), may_change, "{answers:?}");
            assert_eq!(Error::from(ZkFailure::from(answers)).kind(), kind);
        }
    }
}
