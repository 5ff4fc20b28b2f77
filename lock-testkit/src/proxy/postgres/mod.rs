mod message;
mod request;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::protocol::{Messages, Parsed, Protocol, ReplyFate, Request, Said};
use crate::servers::Reply;

use self::message::{Message, up_to};
use self::request::Client;

/// The protocol of PostgreSQL, version 3: a request is all that a client sends up to the message
/// that it expects an answer to, and its reply all up to the message by which the server says that
/// it is ready for another.
#[derive(Default)]
pub(super) struct Postgres {
    client: Mutex<Client>,
    /// For the requests that the server has, in their order.
    awaited: Mutex<VecDeque<(Ticket, ReplyFate)>>,
    /// Whether what follows is secret.
    encrypted: AtomicBool,
}

/// How far a reply goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::proxy) enum Ticket {
    /// A single letter.
    Encryption,
    /// Until the server is ready for the next request.
    Ready,
    /// Until the server asks for more of the authentication, or is ready.
    Step,
    /// There is none.
    Unanswered,
}

impl Protocol for Postgres {
    type Ticket = Ticket;

    // The server sends notifications between transactions, in their place.
    const MESSAGES: Messages = Messages::InOrder;

    fn request(&self, bytes: &[u8]) -> Parsed<Request<Ticket>> {
        lock(&self.client).request(bytes)
    }

    fn sent(&self, ticket: Ticket, fate: ReplyFate) {
        if ticket != Ticket::Unanswered {
            lock(&self.awaited).push_back((ticket, fate));
        }
    }

    fn reply(&self, bytes: &[u8]) -> Parsed<Said> {
        if self.encrypted.load(Ordering::Relaxed) {
            return Parsed::Foreign;
        }
        let mut awaited = lock(&self.awaited);
        let (ticket, fate) = match awaited.front() {
            Some((ticket, fate)) => (*ticket, *fate),
            None => (Ticket::Unanswered, ReplyFate::Arrives),
        };
        let read = match ticket {
            Ticket::Encryption => self.encryption(bytes, fate),
            Ticket::Unanswered => messages(bytes, fate, |_| true),
            Ticket::Ready => messages(bytes, fate, ends_reply),
            Ticket::Step => messages(bytes, fate, ends_step),
        };
        if let Parsed::Whole(Said::Reply(_), _) = &read {
            awaited.pop_front();
        }
        read
    }
}

impl Postgres {
    fn encryption(&self, bytes: &[u8], fate: ReplyFate) -> Parsed<Said> {
        let Some(letter) = bytes.first() else {
            return Parsed::Incomplete;
        };
        self.encrypted
            .store(matches!(letter, b'G' | b'S'), Ordering::Relaxed);
        Parsed::Whole(Said::Reply(fate), 1)
    }
}

/// The reply that the bytes begin with, or the notification before it.
fn messages(bytes: &[u8], fate: ReplyFate, ends: impl Fn(Message<'_>) -> bool) -> Parsed<Said> {
    if bytes.first() != Some(&NOTIFICATION) {
        return match up_to(bytes, ends) {
            Parsed::Foreign => Parsed::Foreign,
            Parsed::Incomplete => Parsed::Incomplete,
            Parsed::Whole(_, length) => Parsed::Whole(Said::Reply(fate), length),
        };
    }
    match up_to(bytes, |_| true) {
        Parsed::Foreign => Parsed::Foreign,
        Parsed::Incomplete => Parsed::Incomplete,
        Parsed::Whole(messages, length) => match notification(&messages) {
            Some(items) => Parsed::Whole(Said::Message(items), length),
            None => Parsed::Foreign,
        },
    }
}

/// The channel, the payload, and the number of the server's process that sent it.
fn notification(messages: &[Message<'_>]) -> Option<Vec<Reply>> {
    let mut fields = messages.first()?.fields();
    let (process, channel, payload) = (fields.int()?, fields.text()?, fields.text()?);
    Some(vec![
        Reply::Bulk(b"notification".to_vec()),
        Reply::Bulk(channel.to_vec()),
        Reply::Bulk(payload.to_vec()),
        Reply::Integer(process.into()),
    ])
}

/// `ReadyForQuery`, or a `CopyInResponse` or `CopyBothResponse`, after which the client sends data.
fn ends_reply(message: Message<'_>) -> bool {
    matches!(message.kind, b'Z' | b'G' | b'W')
}

/// `ReadyForQuery`, an error, or a question of the authentication.
fn ends_step(message: Message<'_>) -> bool {
    match message.kind {
        b'Z' | b'E' => true,
        // Neither that it has succeeded (0) nor the last word of SASL (12).
        b'R' => !matches!(message.fields().int(), Some(0 | 12)),
        _ => false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const NOTIFICATION: u8 = b'A';
