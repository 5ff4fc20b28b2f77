use std::collections::HashMap;
use std::sync::Mutex;

use super::protocol::{Parsed, Protocol, ReplyFate, ServerMessage, Unread};
use crate::lock;

/// The protocol of MySQL and MariaDB: a request is one packet, and all that the server sends until the
/// next one is its reply.
#[derive(Default)]
pub(super) struct MySql(Mutex<MySqlExchange>);

#[derive(Default)]
struct MySqlExchange {
    encrypted: bool,
    fate: ReplyFate,
    /// The text of the statement that is being prepared.
    preparing: Option<Vec<u8>>,
    /// The texts of those that are, by the numbers that the server gave them.
    statements: HashMap<u32, Vec<u8>>,
}

impl Protocol for MySql {
    fn request(&self, bytes: &[u8]) -> Parsed<Vec<Vec<u8>>> {
        let mut exchange = lock(&self.0);
        // A length of three bytes, a number that counts from 0 in each exchange, and the rest.
        let (header, rest) = bytes.split_first_chunk::<4>().ok_or(Unread::Incomplete)?;
        let [low, middle, high, number] = *header;
        let length = u32::from_le_bytes([low, middle, high, 0]) as usize;
        if exchange.encrypted || length == MAX_PACKET {
            return Err(Unread::Foreign);
        }
        let body = rest.get(..length).ok_or(Unread::Incomplete)?;
        // The server speaks first, so only commands begin an exchange.
        let args = match number {
            0 => exchange.command(body),
            _ => {
                exchange.encrypted |= asks_for_tls(body);
                vec![b"LOGIN".to_vec()]
            }
        };
        Ok((args, 4 + length))
    }

    fn sent(&self, _: &[u8], fate: ReplyFate) {
        lock(&self.0).fate = fate;
    }

    fn reply(&self, bytes: &[u8]) -> Parsed<ServerMessage> {
        let mut exchange = lock(&self.0);
        if exchange.preparing.is_some() {
            exchange.prepared(bytes).ok_or(Unread::Incomplete)?;
        }
        Ok((ServerMessage::Reply(exchange.fate), bytes.len()))
    }
}

impl MySqlExchange {
    fn command(&mut self, body: &[u8]) -> Vec<Vec<u8>> {
        let (command, rest) = body.split_first().unwrap_or((&0, &[]));
        let (name, text) = match *command {
            0x03 => ("QUERY", rest.to_vec()),
            0x16 => {
                self.preparing = Some(rest.to_vec());
                ("PREPARE", rest.to_vec())
            }
            0x17 => {
                let text = int(rest, 0).and_then(|number| self.statements.get(&number));
                ("EXECUTE", text.cloned().unwrap_or_default())
            }
            other => return vec![format!("COM{other}").into_bytes()],
        };
        vec![name.as_bytes().to_vec(), text]
    }

    /// Learns from a reply the number of the statement that was prepared, if it was. None if too little
    /// of it has come.
    fn prepared(&mut self, reply: &[u8]) -> Option<()> {
        let (answer, number) = (*reply.get(4)?, int(reply, 5)?);
        let text = self.preparing.take()?;
        if answer == OK {
            self.statements.insert(number, text);
        }
        Some(())
    }
}

/// Whether the first packet of a client has nothing but what it can do, and TLS is a part of that.
fn asks_for_tls(body: &[u8]) -> bool {
    let can = int(body, 0).filter(|_| body.len() == 32 && body[9..28] == [0; 19]);
    can.is_some_and(|can| can & (1 << 11) != 0)
}

fn int(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

const OK: u8 = 0x00;

/// A packet of this length goes on in the next one.
const MAX_PACKET: usize = 0x00ff_ffff;
