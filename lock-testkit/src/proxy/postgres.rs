use std::collections::HashMap;
use std::sync::Mutex;

use super::protocol::{Parsed, Protocol, RecordFields, ReplyFate, ServerMessage, Unread};
use crate::lock;

/// The protocol of PostgreSQL, version 3: a request is all that a client sends up to the message
/// that it expects an answer to, and all that the server sends until the next one is its reply.
#[derive(Default)]
pub(super) struct Postgres(Mutex<PostgresExchange>);

#[derive(Default)]
struct PostgresExchange {
    /// Whether the client has said who it is, before which messages have no letter.
    begun: bool,
    fate: ReplyFate,
    /// The texts of the prepared statements by their names.
    statements: HashMap<Vec<u8>, Vec<u8>>,
}

impl Protocol for Postgres {
    fn request(&self, bytes: &[u8]) -> Parsed<Vec<Vec<u8>>> {
        let mut exchange = lock(&self.0);
        if !exchange.begun {
            return exchange.opening(bytes);
        }
        let (mut args, mut rest) = (vec![b"SYNC".to_vec()], bytes);
        while let Some((kind, message)) = rest.split_first() {
            let (body, length) = body(message)?;
            exchange.add(*kind, RecordFields(body), &mut args);
            rest = &message[length..];
            if ENDS.contains(kind) {
                return Ok((args, bytes.len() - rest.len()));
            }
        }
        Err(Unread::Incomplete)
    }

    fn sent(&self, _: &[u8], fate: ReplyFate) {
        lock(&self.0).fate = fate;
    }

    fn reply(&self, bytes: &[u8]) -> Parsed<ServerMessage> {
        Ok((ServerMessage::Reply(lock(&self.0).fate), bytes.len()))
    }
}

impl PostgresExchange {
    fn opening(&mut self, bytes: &[u8]) -> Parsed<Vec<Vec<u8>>> {
        let (body, length) = body(bytes)?;
        self.begun = match RecordFields(body).int() {
            Some(0x0003_0000..=0x0003_ffff) => true,
            // A request to cancel, for TLS or for GSS.
            Some(80_877_102..=80_877_104) => false,
            _ => return Err(Unread::Foreign),
        };
        Ok((vec![b"STARTUP".to_vec()], length))
    }

    /// Says what a message makes of a request. Of several statements the first counts, and its
    /// execution more than its preparation.
    fn add(&mut self, kind: u8, mut fields: RecordFields<'_>, args: &mut Vec<Vec<u8>>) {
        let is = |args: &Vec<Vec<u8>>, name: &str| args[0] == name.as_bytes();
        let mut text = || fields.text().unwrap_or_default().to_vec();
        let (name, text): (&str, Vec<u8>) = match kind {
            b'P' => {
                let (name, text) = (text(), text());
                self.statements.insert(name, text.clone());
                if !is(args, "SYNC") {
                    return;
                }
                ("PREPARE", text)
            }
            b'B' if !is(args, "EXECUTE") => {
                let (_portal, name) = (text(), text());
                let text = self.statements.get(&name).cloned();
                ("EXECUTE", text.unwrap_or_default())
            }
            b'Q' => ("QUERY", text()),
            _ => return,
        };
        *args = vec![name.as_bytes().to_vec(), text];
    }
}

/// What follows a length, which counts itself; the first message of a connection has no letter.
fn body(bytes: &[u8]) -> Parsed<&[u8]> {
    let length = *bytes.first_chunk().ok_or(Unread::Incomplete)?;
    let Ok(length @ 4..=MAX_MESSAGE) = usize::try_from(i32::from_be_bytes(length)) else {
        return Err(Unread::Foreign);
    };
    let body = bytes.get(4..length).ok_or(Unread::Incomplete)?;
    Ok((body, length))
}

/// The last messages of what a client sends at a time: those that are answered (`Query`, `Sync`,
/// `FunctionCall`, a step of the authentication), and those that others may wait behind (`Flush`,
/// `Terminate`, and the three of a copy).
const ENDS: [u8; 9] = *b"QSFpHXcdf";

/// The longest message in bytes, above what tests send. What begins with a TLS record would be
/// longer.
const MAX_MESSAGE: usize = 16 << 20;
