use std::collections::HashMap;

use super::super::protocol::{Parsed, Request};
use super::Ticket;
use super::message::{Fields, Message, body, up_to};

/// What a client has said so far.
#[derive(Default)]
pub(super) struct Client {
    /// Whether it has said who it is, before which messages have no letter.
    begun: bool,
    /// The texts of its prepared statements by their names.
    statements: HashMap<Vec<u8>, Vec<u8>>,
}

impl Client {
    pub(super) fn request(&mut self, bytes: &[u8]) -> Parsed<Request<Ticket>> {
        if !self.begun {
            return self.opening(bytes);
        }
        match up_to(bytes, |message| ENDS.contains(&message.kind)) {
            Parsed::Foreign => Parsed::Foreign,
            Parsed::Incomplete => Parsed::Incomplete,
            Parsed::Whole(messages, length) => Parsed::Whole(self.read(&messages), length),
        }
    }

    fn opening(&mut self, bytes: &[u8]) -> Parsed<Request<Ticket>> {
        let (body, length) = match body(bytes) {
            Parsed::Foreign => return Parsed::Foreign,
            Parsed::Incomplete => return Parsed::Incomplete,
            Parsed::Whole(body, length) => (body, length),
        };
        let (name, ticket) = match Fields(body).int() {
            Some(0x0003_0000..=0x0003_ffff) => ("STARTUP", Ticket::Step),
            Some(CANCEL) => ("CANCEL", Ticket::Unanswered),
            Some(TLS) => ("TLS", Ticket::Encryption),
            Some(GSS) => ("GSS", Ticket::Encryption),
            _ => return Parsed::Foreign,
        };
        self.begun = name == "STARTUP";
        let args = vec![name.as_bytes().to_vec()];
        Parsed::Whole(Request { args, ticket }, length)
    }

    fn read(&mut self, messages: &[Message<'_>]) -> Request<Ticket> {
        let ticket = match messages.last().map(|last| last.kind) {
            Some(b'Q' | b'S' | b'F') => Ticket::Ready,
            Some(b'p') => Ticket::Step,
            _ => Ticket::Unanswered,
        };
        let mut args = vec![b"SYNC".to_vec()];
        for message in messages {
            self.add(*message, &mut args);
        }
        Request { args, ticket }
    }

    /// Says what a message makes of a request. Of several statements the first counts, and its
    /// execution more than its preparation.
    fn add(&mut self, message: Message<'_>, args: &mut Vec<Vec<u8>>) {
        let mut fields = message.fields();
        let name: &[u8] = match message.kind {
            b'P' => {
                let (Some(name), Some(text)) = (fields.text(), fields.text()) else {
                    return;
                };
                self.statements.insert(name.to_vec(), text.to_vec());
                if args[0] == b"SYNC" {
                    *args = vec![b"PREPARE".to_vec(), text.to_vec()];
                }
                return;
            }
            b'B' => {
                let (Some(_portal), Some(name)) = (fields.text(), fields.text()) else {
                    return;
                };
                if args[0] != b"EXECUTE" {
                    let text = self.statements.get(name).cloned().unwrap_or_default();
                    *args = vec![b"EXECUTE".to_vec(), text];
                }
                return;
            }
            b'Q' => {
                let text = fields.text().unwrap_or_default();
                *args = vec![b"QUERY".to_vec(), text.to_vec()];
                return;
            }
            b'X' => b"QUIT",
            b'p' => b"LOGIN",
            _ => return,
        };
        *args = vec![name.to_vec()];
    }
}

/// The last messages of what a client sends at a time: those that are answered (`Query`, `Sync`,
/// `FunctionCall`, a step of the authentication), and those that others may wait behind (`Flush`,
/// `Terminate`, and the three of a copy).
const ENDS: [u8; 9] = *b"QSFpHXcdf";

const CANCEL: i32 = 80_877_102;
const TLS: i32 = 80_877_103;
const GSS: i32 = 80_877_104;
