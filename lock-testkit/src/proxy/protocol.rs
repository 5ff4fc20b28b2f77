use std::time::Duration;

use super::Then;
use crate::servers::Reply;

/// What the relay has to know of a protocol: how bytes are told apart, and which reply answers which
/// request. One value serves one connection.
pub(super) trait Protocol: Default + Send + Sync {
    /// Says which replies answer a request.
    type Ticket: Copy + Send + Sync;

    /// How messages that nobody asked for travel beside the replies.
    const MESSAGES: Messages;

    /// The first request of the bytes.
    fn request(&self, bytes: &[u8]) -> Parsed<Request<Self::Ticket>>;

    /// Called when a request leaves for the server, before it does.
    fn sent(&self, ticket: Self::Ticket, fate: ReplyFate);

    /// The first thing of the bytes that the server sent.
    fn reply(&self, bytes: &[u8]) -> Parsed<Said>;
}

/// Which protocol a proxy understands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wire {
    Bytes,
    MySql,
    Postgres,
    Resp,
    ZooKeeper,
}

/// What the bytes begin with.
pub(super) enum Parsed<T> {
    /// Something else, and so is all that follows.
    Foreign,
    /// Something that is not complete.
    Incomplete,
    /// This, with its length.
    Whole(T, usize),
}

/// What a client asks for.
pub(super) struct Request<T> {
    pub(super) args: Vec<Vec<u8>>,
    pub(super) ticket: T,
}

/// What a server says.
pub(super) enum Said {
    /// Something that nobody asked for.
    Message(Vec<Reply>),
    /// An answer, with what was planned for it.
    Reply(ReplyFate),
}

/// How messages travel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Messages {
    /// In their place among the replies, which wait for one another.
    InOrder,
    /// Past replies that are late.
    Passing,
}

/// What becomes of a reply.
#[derive(Clone, Copy)]
pub(super) enum ReplyFate {
    Arrives,
    Cut(usize),
    Late(Duration),
    Lost(Then),
    Swallowed,
}
