use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::protocol::{Parsed, Protocol, RecordFields, ReplyFate, ServerMessage, Unread};
use crate::lock;
use crate::servers::Reply;

/// The protocol of `ZooKeeper`, whose records are called jute: frames with their length before them.
///
/// Replies have the number of their request, but clients take one that is missing among them for a
/// broken server, and an event that overtakes the reply that set its watch finds no watch there. So
/// nothing overtakes here, and what is lost ends the connection, as with TCP.
#[derive(Default)]
pub(super) struct Jute {
    /// Whether the server has answered the request for a session.
    greeted: AtomicBool,
    /// For the requests that the server has, in their order, with their numbers. Pings and the like
    /// share theirs.
    awaited: Mutex<VecDeque<(i32, ReplyFate)>>,
}

impl Protocol for Jute {
    fn request(&self, bytes: &[u8]) -> Parsed<Vec<Vec<u8>>> {
        frame(bytes, |fields| {
            if fields.int()? == CONNECT {
                return Some(vec![b"CONNECT".to_vec()]);
            }
            let operation = fields.int()?;
            Some(args(operation, fields))
        })
    }

    fn sent(&self, request: &[u8], fate: ReplyFate) {
        let (xid, _) = frame(request, |fields| fields.int()).expect("BUG: it was parsed before");
        lock(&self.awaited).push_back((xid, fate));
    }

    fn reply(&self, bytes: &[u8]) -> Parsed<ServerMessage> {
        frame(bytes, |fields| {
            if !self.greeted.swap(true, Ordering::Relaxed) {
                return Some(ServerMessage::Reply(self.fate_of(CONNECT)));
            }
            let (xid, _zxid, _error) = (fields.int()?, fields.long()?, fields.int()?);
            if xid == EVENT {
                return Some(ServerMessage::Message(event(fields)?));
            }
            Some(ServerMessage::Reply(self.fate_of(xid)))
        })
    }
}

impl Jute {
    fn fate_of(&self, xid: i32) -> ReplyFate {
        let mut queue = lock(&self.awaited);
        let at = queue.iter().position(|(awaited, _)| *awaited == xid);
        at.and_then(|at| queue.remove(at))
            .map_or(ReplyFate::Arrives, |(_, fate)| fate)
    }
}

/// Reads the frame that the bytes begin with.
fn frame<T>(bytes: &[u8], read: impl FnOnce(&mut RecordFields<'_>) -> Option<T>) -> Parsed<T> {
    let (length, rest) = bytes.split_first_chunk().ok_or(Unread::Incomplete)?;
    let Ok(length @ ..=MAX_FRAME) = usize::try_from(i32::from_be_bytes(*length)) else {
        return Err(Unread::Foreign);
    };
    let body = rest.get(..length).ok_or(Unread::Incomplete)?;
    let read = read(&mut RecordFields(body)).ok_or(Unread::Foreign)?;
    Ok((read, 4 + length))
}

/// What happened: its type and its path.
fn event(fields: &mut RecordFields<'_>) -> Option<Vec<Reply>> {
    let (kind, _state, path) = (fields.int()?, fields.int()?, fields.bytes()?);
    Some(vec![
        Reply::Bulk(b"event".to_vec()),
        Reply::Integer(kind.into()),
        Reply::Bulk(path.to_vec()),
    ])
}

/// The words of any other request: its name, its path, and what is useful to know of the rest.
fn args(operation: i32, fields: &mut RecordFields<'_>) -> Vec<Vec<u8>> {
    let name = name(operation);
    let name_word = name.map_or_else(|| format!("OP{operation}"), str::to_owned);
    let mut args = vec![name_word.into_bytes(), Vec::new()];
    // The first of several operations stands for all.
    let first = match name {
        Some("MULTI") => first_of_several(fields),
        _ => Some(operation),
    };
    let Some(first) = first.filter(|first| HAVE_PATH.contains(first)) else {
        return args;
    };
    let Some(path) = fields.bytes() else {
        return args;
    };
    args[1] = path.to_vec();
    match name {
        Some("CREATE") => args.extend(flags(fields).map(|flags| flags.to_string().into_bytes())),
        Some("EXISTS" | "GETCHILDREN" | "GETDATA") => {
            let watch = fields.byte().is_some_and(|watch| watch != 0);
            args.push(if watch { b"watch".to_vec() } else { Vec::new() });
        }
        Some("MULTI") => args.extend(self::name(first).map(|name| name.as_bytes().to_vec())),
        _ => {}
    }
    args
}

/// Each operation has a header of its own.
fn first_of_several(fields: &mut RecordFields<'_>) -> Option<i32> {
    let (operation, _is_end, _error) = (fields.int()?, fields.byte()?, fields.int()?);
    Some(operation)
}

/// What is behind the data and the access list of a node.
fn flags(fields: &mut RecordFields<'_>) -> Option<i32> {
    fields.bytes()?;
    for _ in 0..fields.int()? {
        let (_permissions, _scheme, _id) = (fields.int()?, fields.bytes()?, fields.bytes()?);
    }
    fields.int()
}

fn name(operation: i32) -> Option<&'static str> {
    Some(match operation {
        // Four ways: with and without what it made as an answer, a container, one with a ttl.
        1 | 15 | 19 | 21 => "CREATE",
        2 => "DELETE",
        3 => "EXISTS",
        4 => "GETDATA",
        5 => "SETDATA",
        8 | 12 => "GETCHILDREN",
        9 => "SYNC",
        11 => "PING",
        13 => "CHECK",
        14 => "MULTI",
        _ => return None,
    })
}

/// The operations that begin with a path, among them `removeWatches` (18) and `addWatch` (106).
const HAVE_PATH: [i32; 14] = [1, 2, 3, 4, 5, 8, 9, 12, 13, 15, 18, 19, 21, 106];

/// The number of an event in place of one of a request.
const EVENT: i32 = -1;

/// What the request for a session, which has no header, has in place of a number: the version of the
/// protocol.
const CONNECT: i32 = 0;

/// The longest frame in bytes, above the 1 MiB that a server takes. What begins with text or a TLS
/// record would be longer.
const MAX_FRAME: usize = 16 << 20;
