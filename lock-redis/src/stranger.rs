//! Identifies a server that is not Redis, for the error message.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::{RedisCause, RedisFailure};

/// Adds to the failure of a first connection what was found at the address. Sends nothing if the
/// connection was refused, since nothing listens there.
pub(crate) async fn explained(failure: RedisFailure, uses_tls: bool) -> RedisFailure {
    let server = match &failure.cause {
        RedisCause::Connect { server, source } if !is_refused(&**source) => Arc::clone(server),
        RedisCause::Silent { server, .. } | RedisCause::Untrusted { server, .. } if uses_tls => {
            Arc::clone(server)
        }
        _ => return failure,
    };
    match timeout(LOOK_TIMEOUT, look(&server, uses_tls)).await {
        Ok(Ok(Some(what))) => {
            let kind = failure.cause.kind();
            RedisCause::Stranger { server, what, kind }.into()
        }
        // The first error is more useful than that of the second connection.
        _ => failure,
    }
}

/// How long a client tries to find out what listens there.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a server may take for its first bytes.
const FIRST_BYTES: Duration = Duration::from_millis(300);

fn is_refused(source: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(source);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::ConnectionRefused;
        }
        next = error.source();
    }
    false
}

async fn look(server: &str, uses_tls: bool) -> io::Result<Option<String>> {
    let seen = answer(server, b"PING\r\n").await?;
    let is_redis = matches!(seen.first(), Some(b'+' | b'-'));
    if is_redis && uses_tls {
        return Ok(Some(
            "a Redis without TLS: use the scheme without it".into(),
        ));
    }
    let is_tls = match speaks_tls(&seen) {
        // A server that only waits for the right first bytes.
        false if seen.is_empty() => speaks_tls(&answer(server, &EMPTY_HELLO).await?),
        is_tls => is_tls,
    };
    Ok(match is_tls {
        // Then the first error is about something else.
        true if uses_tls => None,
        true => Some("a server that speaks TLS only: use rediss: or tls=on".into()),
        false => name(&seen),
    })
}

async fn answer(server: &str, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(question).await?;
    let mut seen = vec![0; 64];
    // A server that closes the connection, or sends nothing, is identified by that.
    let count = timeout(FIRST_BYTES, stream.read(&mut seen)).await;
    seen.truncate(count.ok().and_then(Result::ok).unwrap_or(0));
    Ok(seen)
}

fn speaks_tls(seen: &[u8]) -> bool {
    matches!(seen, [ALERT | HANDSHAKE, 3, ..])
}

/// The server that sends these first bytes or this reply to `PING`; `None` for Redis and no bytes.
fn name(seen: &[u8]) -> Option<String> {
    let what = match seen {
        [] | [b'+' | b'-', ..] => return None,
        [b'H', b'T', b'T', b'P', b'/', ..] => "an HTTP server",
        [b'S', b'S', b'H', b'-', ..] => "an SSH server",
        // The length of a packet, its number 0, and the version of the protocol.
        [_, _, 0, 0, 10, ..] => "MySQL or MariaDB",
        _ => {
            let line = seen.split(|byte| byte.is_ascii_control()).next()?;
            let text = String::from_utf8_lossy(line);
            return Some(format!("a server that is not Redis and says {text:?}"));
        }
    };
    Some(what.to_owned())
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// A record of a TLS handshake with an empty hello, which a TLS server answers with an alert.
const EMPTY_HELLO: [u8; 9] = [HANDSHAKE, 3, 1, 0, 4, 1, 0, 0, 0];
