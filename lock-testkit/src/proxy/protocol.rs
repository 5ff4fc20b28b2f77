use std::time::Duration;

use super::Then;
use crate::servers::Reply;

/// Parses a protocol for the relay, and matches replies to requests. One value serves one connection.
pub(super) trait Protocol: Send + Sync {
    /// How unsolicited messages are ordered among the replies.
    fn messages(&self) -> Messages {
        Messages::InOrder
    }

    /// The words of the first request of the bytes.
    fn request(&self, bytes: &[u8]) -> Parsed<Vec<Vec<u8>>>;

    /// Called when a request leaves for the server, before it does, with all of its bytes.
    fn sent(&self, request: &[u8], fate: ReplyFate);

    /// The first thing of the bytes that the server sent.
    fn reply(&self, bytes: &[u8]) -> Parsed<ServerMessage>;
}

/// No protocol that is known here: bytes pass, and the faults of bytes apply.
pub(super) struct Bytes;

impl Protocol for Bytes {
    fn request(&self, _: &[u8]) -> Parsed<Vec<Vec<u8>>> {
        Err(Unread::Foreign)
    }

    fn sent(&self, _: &[u8], _: ReplyFate) {}

    fn reply(&self, _: &[u8]) -> Parsed<ServerMessage> {
        Err(Unread::Foreign)
    }
}

/// What a proxy understands.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wire {
    /// Bytes and connections alone.
    Bytes,
    /// The packets of MySQL and MariaDB.
    MySql,
    /// The messages of PostgreSQL.
    Postgres,
    /// The commands and messages of Redis.
    Resp,
    /// The records of `ZooKeeper`.
    ZooKeeper,
}

/// What the bytes begin with, and its length.
pub(super) type Parsed<T> = Result<(T, usize), Unread>;

#[derive(Clone, Copy, Debug)]
pub(super) enum Unread {
    /// They are something else, and so is all that follows.
    Foreign,
    /// They are not complete.
    Incomplete,
}

pub(super) enum ServerMessage {
    /// An unsolicited message.
    Message(Vec<Reply>),
    /// An answer or a part of one, with what was planned for it.
    Reply(ReplyFate),
}

/// How messages travel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Messages {
    /// In their place among the replies, which wait for one another.
    InOrder,
    /// Ahead of late replies.
    Passing,
}

#[derive(Clone, Copy, Default)]
pub(super) enum ReplyFate {
    #[default]
    Arrives,
    Cut(usize),
    Late(Duration),
    Lost(Then),
    Replaced(&'static str),
    Swallowed,
}

/// The fields of a record that are not read yet, numbers in the order of the network.
pub(super) struct RecordFields<'a>(pub(super) &'a [u8]);

impl<'a> RecordFields<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        self.chunk().map(|[byte]| byte)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        self.chunk().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_be_bytes)
    }

    /// Bytes behind their length. What is null has the length -1 and is read as empty.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.int()?.max(0)).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A text that ends with a zero.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(text)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
}
