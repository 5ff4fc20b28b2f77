use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::protocol::{Messages, Parsed, Protocol, ReplyFate, ServerMessage, Unread};
use crate::lock;
use crate::servers::Reply;

/// RESP2 and RESP3: replies have no names and come in the order of their commands.
#[derive(Default)]
pub(super) struct Resp {
    /// For the commands that the server has, in their order.
    awaited: Mutex<VecDeque<(AwaitedReplies, ReplyFate)>>,
    /// Whether it has subscribed by RESP2, where messages are arrays.
    listens: AtomicBool,
}

/// The replies to one command that are still to come.
struct AwaitedReplies {
    /// How many there are: one, but one per channel for commands that subscribe.
    replies: usize,
    /// Whether it is answered like `SUBSCRIBE`: by push messages where the protocol has them.
    subscribes: bool,
}

impl Protocol for Resp {
    fn messages(&self) -> Messages {
        Messages::Passing
    }

    fn request(&self, bytes: &[u8]) -> Parsed<Vec<Vec<u8>>> {
        let (request, length) = parse(bytes)?;
        Ok((words(request).ok_or(Unread::Foreign)?, length))
    }

    fn sent(&self, request: &[u8], fate: ReplyFate) {
        let (args, _) = self.request(request).expect("BUG: it was parsed before");
        lock(&self.awaited).push_back((AwaitedReplies::of(&args), fate));
    }

    fn reply(&self, bytes: &[u8]) -> Parsed<ServerMessage> {
        let (reply, length) = parse(bytes)?;
        let said = match self.is_message(&reply) {
            true => ServerMessage::Message(reply.items().to_vec()),
            false => ServerMessage::Reply(self.fate_of(&reply)),
        };
        Ok((said, length))
    }
}

impl Resp {
    /// Whether it answers no command of this connection.
    fn is_message(&self, reply: &Reply) -> bool {
        let kind = reply.items().first().and_then(Reply::text);
        let kind = kind.unwrap_or_default();
        match reply {
            Reply::Push(_) => {
                !CONFIRMATIONS.contains(&kind.as_str()) || !self.awaits_confirmation()
            }
            Reply::Array(_) => {
                self.listens.load(Ordering::Relaxed) && MESSAGES.contains(&kind.as_str())
            }
            _ => false,
        }
    }

    fn awaits_confirmation(&self) -> bool {
        let queue = lock(&self.awaited);
        queue.front().is_some_and(|(awaited, _)| awaited.subscribes)
    }

    fn fate_of(&self, reply: &Reply) -> ReplyFate {
        let mut queue = lock(&self.awaited);
        let Some((awaited, fate)) = queue.front_mut() else {
            return ReplyFate::Arrives;
        };
        let fate = *fate;
        if awaited.subscribes && matches!(reply, Reply::Array(_)) {
            self.listens.store(true, Ordering::Relaxed);
        }
        awaited.replies = awaited.replies.saturating_sub(1);
        // An error answers all channels at once.
        if awaited.replies == 0 || reply.is_error() {
            queue.pop_front();
        }
        fate
    }
}

impl AwaitedReplies {
    fn of(args: &[Vec<u8>]) -> Self {
        let name = args.first().map_or(&[][..], Vec::as_slice);
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let subscribes = CONFIRMATIONS.contains(&name.as_str());
        let replies = if subscribes {
            args.len().saturating_sub(1).max(1)
        } else {
            1
        };
        Self {
            replies,
            subscribes,
        }
    }
}

fn parse(bytes: &[u8]) -> Parsed<Reply> {
    let parsed = Reply::parse(bytes).map_err(|_| Unread::Foreign)?;
    parsed.ok_or(Unread::Incomplete)
}

/// None if it is not in the form in which clients send commands.
fn words(request: Reply) -> Option<Vec<Vec<u8>>> {
    let Reply::Array(words) = request else {
        return None;
    };
    words
        .into_iter()
        .map(|word| match word {
            Reply::Bulk(bytes) => Some(bytes),
            _ => None,
        })
        .collect()
}

/// The commands that subscribe, which are also the kinds of their answers.
const CONFIRMATIONS: [&str; 6] = [
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
];

/// The kinds of messages that RESP2 has as arrays.
const MESSAGES: [&str; 3] = ["message", "pmessage", "smessage"];
