use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::jute_request::{args, connect_args};
use super::protocol::{Messages, Parsed, Protocol, ReplyFate, Request, Said};
use crate::servers::Reply;

/// The protocol of `ZooKeeper`, whose records are called jute: frames with their length before them.
///
/// Replies have the number of their request, but clients take one that is missing among them for a
/// broken server. So nothing overtakes here, and what is lost ends the connection, as with TCP.
#[derive(Default)]
pub(super) struct Jute {
    /// Whether the client has sent its first request, which alone has no header.
    asked: AtomicBool,
    /// Whether the server has answered that.
    greeted: AtomicBool,
    /// For the requests that the server has, in their order.
    awaited: Mutex<VecDeque<(Ticket, ReplyFate)>>,
}

/// Whom a reply answers.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Ticket {
    /// The request for a session.
    Connect,
    /// Requests with this number: one, but for pings and the like, which share theirs.
    Xid(i32),
}

impl Protocol for Jute {
    type Ticket = Ticket;

    // An event that overtakes the reply that set its watch finds no watch at the client.
    const MESSAGES: Messages = Messages::InOrder;

    fn request(&self, bytes: &[u8]) -> Parsed<Request<Ticket>> {
        frame(bytes, |fields| {
            if self.asked.load(Ordering::Relaxed) {
                let (xid, operation) = (fields.int()?, fields.int()?);
                let (args, ticket) = (args(operation, fields), Ticket::Xid(xid));
                return Some(Request { args, ticket });
            }
            let args = connect_args(fields)?;
            self.asked.store(true, Ordering::Relaxed);
            let ticket = Ticket::Connect;
            Some(Request { args, ticket })
        })
    }

    fn sent(&self, ticket: Ticket, fate: ReplyFate) {
        let mut queue = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back((ticket, fate));
    }

    fn reply(&self, bytes: &[u8]) -> Parsed<Said> {
        frame(bytes, |fields| {
            if !self.greeted.swap(true, Ordering::Relaxed) {
                return Some(Said::Reply(self.fate_of(Ticket::Connect)));
            }
            let (xid, _zxid, _error) = (fields.int()?, fields.long()?, fields.int()?);
            if xid == EVENT {
                return Some(Said::Message(event(fields)?));
            }
            Some(Said::Reply(self.fate_of(Ticket::Xid(xid))))
        })
    }
}

impl Jute {
    fn fate_of(&self, ticket: Ticket) -> ReplyFate {
        let mut queue = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let at = queue.iter().position(|(awaited, _)| *awaited == ticket);
        at.and_then(|at| queue.remove(at))
            .map_or(ReplyFate::Arrives, |(_, fate)| fate)
    }
}

/// The fields of a frame that are not read yet.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_be_bytes(*bytes))
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i64::from_be_bytes(*bytes))
    }

    /// A string or a buffer. One that is null has the length -1 and is read as empty.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.int()?.max(0)).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// Reads the frame that the bytes begin with.
fn frame<T>(bytes: &[u8], read: impl FnOnce(&mut Fields<'_>) -> Option<T>) -> Parsed<T> {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return Parsed::Incomplete;
    };
    let Ok(length @ ..=LONGEST) = usize::try_from(i32::from_be_bytes(*length)) else {
        return Parsed::Foreign;
    };
    let Some(body) = rest.get(..length) else {
        return Parsed::Incomplete;
    };
    match read(&mut Fields(body)) {
        Some(read) => Parsed::Whole(read, 4 + length),
        None => Parsed::Foreign,
    }
}

/// What happened, its type and its path, and the state of the session.
fn event(fields: &mut Fields<'_>) -> Option<Vec<Reply>> {
    let (kind, state, path) = (fields.int()?, fields.int()?, fields.bytes()?);
    Some(vec![
        Reply::Bulk(b"event".to_vec()),
        Reply::Integer(kind.into()),
        Reply::Bulk(path.to_vec()),
        Reply::Integer(state.into()),
    ])
}

/// The number of an event in place of one of a request.
const EVENT: i32 = -1;

/// The longest frame in bytes, above the 1 MiB that a server takes. What begins with text or a TLS
/// record would be longer.
const LONGEST: usize = 16 << 20;
