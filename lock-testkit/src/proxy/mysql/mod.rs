mod answer;
mod packets;

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::protocol::{Messages, Parsed, Protocol, ReplyFate, Request, Said};

use self::answer::{Answer, Dialect, LONGEST};
use self::packets::{Fields, Packet, read};

/// The protocol of MySQL and MariaDB: a request is one packet, its reply all packets up to the end
/// of the last result. It takes the server to agree to what the client says it can do.
#[derive(Default)]
pub(super) struct MySql(Mutex<Exchange>);

#[derive(Default)]
struct Exchange {
    dialect: Dialect,
    encrypted: bool,
    /// For the requests that the server has, in their order.
    awaited: VecDeque<(Ticket, ReplyFate)>,
    /// The texts of the statements that are being prepared.
    preparing: VecDeque<Vec<u8>>,
    /// The texts of those that are, by the numbers that the server gave them.
    statements: HashMap<u32, Vec<u8>>,
}

/// How far a reply goes.
pub(super) type Ticket = Answer;

impl Protocol for MySql {
    type Ticket = Ticket;

    const MESSAGES: Messages = Messages::InOrder;

    fn request(&self, bytes: &[u8]) -> Parsed<Request<Ticket>> {
        let mut exchange = self.exchange();
        if exchange.encrypted {
            return Parsed::Foreign;
        }
        match read(bytes, |packets| packets.next()) {
            Parsed::Foreign => Parsed::Foreign,
            Parsed::Incomplete => Parsed::Incomplete,
            Parsed::Whole(packet, _) if packet.body.len() == LONGEST => Parsed::Foreign,
            Parsed::Whole(packet, length) => Parsed::Whole(exchange.asked(packet), length),
        }
    }

    fn sent(&self, ticket: Ticket, fate: ReplyFate) {
        if ticket != Answer::None {
            self.exchange().awaited.push_back((ticket, fate));
        }
    }

    fn reply(&self, bytes: &[u8]) -> Parsed<Said> {
        let mut exchange = self.exchange();
        if exchange.encrypted {
            return Parsed::Foreign;
        }
        let awaited = exchange.awaited.front().copied();
        let (answer, fate) = awaited.unwrap_or((Answer::None, ReplyFate::Arrives));
        let dialect = exchange.dialect;
        match read(bytes, |packets| dialect.pass(answer, packets)) {
            Parsed::Foreign => Parsed::Foreign,
            Parsed::Incomplete => Parsed::Incomplete,
            Parsed::Whole((), length) => {
                exchange.awaited.pop_front();
                if answer == Answer::Prepared {
                    exchange.prepared(bytes);
                }
                Parsed::Whole(Said::Reply(fate), length)
            }
        }
    }
}

impl MySql {
    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchange {
    fn asked(&mut self, packet: Packet<'_>) -> Request<Ticket> {
        // The server speaks first, so only commands begin an exchange.
        if packet.number == 0 {
            let (command, rest) = packet.body.split_first().unwrap_or((&PING, &[]));
            let (args, ticket) = self.command(*command, rest);
            return Request { args, ticket };
        }
        self.greeted(packet.body);
        let (args, ticket) = (vec![b"LOGIN".to_vec()], Answer::None);
        Request { args, ticket }
    }

    /// Learns from the first packet of a client what it can do.
    fn greeted(&mut self, body: &[u8]) {
        let is_first = body.len() >= 32 && body[9..28].iter().all(|byte| *byte == 0);
        let Some(can) = Fields(body).int().filter(|_| is_first) else {
            return;
        };
        let more = Fields(&body[28..]).int().filter(|_| can & NO_MARIADB == 0);
        self.encrypted = body.len() == 32 && can & TLS != 0;
        self.dialect = Dialect {
            short_ends: can & SHORT_ENDS != 0,
            cached_columns: more.unwrap_or_default() & CACHED_COLUMNS != 0,
        };
    }

    fn command(&mut self, command: u8, rest: &[u8]) -> (Vec<Vec<u8>>, Ticket) {
        let (name, answer) = match command {
            0x01 => ("QUIT", Answer::None),
            QUERY => ("QUERY", Answer::Results),
            PING => ("PING", Answer::Packet),
            PREPARE => ("PREPARE", Answer::Prepared),
            EXECUTE => ("EXECUTE", Answer::Results),
            0x19 => ("CLOSE", Answer::None),
            other => {
                let name = format!("COM{other}").into_bytes();
                return (vec![name], Answer::Packet);
            }
        };
        let mut args = vec![name.as_bytes().to_vec()];
        match command {
            QUERY => args.push(rest.to_vec()),
            PREPARE => {
                self.preparing.push_back(rest.to_vec());
                args.push(rest.to_vec());
            }
            EXECUTE => {
                let number = Fields(rest).int();
                let text = number.and_then(|number| self.statements.get(&number));
                args.push(text.cloned().unwrap_or_default());
            }
            _ => {}
        }
        (args, answer)
    }

    /// Learns from a reply the number of the statement that was prepared, if it was.
    fn prepared(&mut self, reply: &[u8]) {
        let text = self.preparing.pop_front();
        if let (Some([0]), Some(text)) = (Fields(reply.get(4..).unwrap_or_default()).bytes(), text)
            && let Some(number) = Fields(&reply[5..]).int()
        {
            self.statements.insert(number, text);
        }
    }
}

const QUERY: u8 = 0x03;
const PING: u8 = 0x0e;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;

/// What a client can do: it speaks TLS, is not of MariaDB, and needs no ends of columns.
const TLS: u32 = 1 << 11;
const NO_MARIADB: u32 = 1;
const SHORT_ENDS: u32 = 1 << 24;
/// The same among what only those of MariaDB can: it remembers the columns of a statement.
const CACHED_COLUMNS: u32 = 1 << 4;
