use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::command::{CONFIRMATIONS, Command};
use super::lane::{End, Item, Lane};
use super::plan::Plans;
use super::{Answer, Fate, PushFate, Then};
use crate::servers::Reply;

/// What the two directions of one connection know of each other.
pub(super) struct Relay<'a> {
    plans: &'a Plans,
    connection: usize,
    /// For the commands that the server has, in their order.
    awaited: Mutex<VecDeque<Awaited>>,
    /// Whether it has subscribed by RESP2, where messages are arrays.
    listens: AtomicBool,
}

/// Replies to come.
pub(super) struct Awaited {
    fate: ReplyFate,
    replies: usize,
    subscribes: bool,
}

#[derive(Clone, Copy)]
enum ReplyFate {
    Arrives,
    Cut(usize),
    Late(Duration),
    Lost(Then),
    Swallowed,
}

impl<'a> Relay<'a> {
    pub(super) fn new(plans: &'a Plans, connection: usize) -> Self {
        Self {
            plans,
            connection,
            awaited: Mutex::default(),
            listens: AtomicBool::new(false),
        }
    }

    /// Puts a request into the lane by its fate. False if it is no command.
    pub(super) fn request(
        &self,
        request: &Reply,
        bytes: &[u8],
        due: Instant,
        lane: &Lane<Awaited>,
    ) -> bool {
        let Some(command) = Command::new(request, self.connection) else {
            return false;
        };
        let fate = self.plans.meet(&command);
        let send = |due, reply| {
            let awaited = Awaited {
                fate: reply,
                replies: command.replies(),
                subscribes: command.subscribes(),
            };
            Item::bytes(due, bytes.to_vec()).with_note(awaited)
        };
        match fate {
            None => lane.push(send(due, ReplyFate::Arrives)),
            Some(Fate::CutReply(length)) => lane.push(send(due, ReplyFate::Cut(length))),
            Some(Fate::CutRequest(length)) => {
                let part = bytes[..length.min(bytes.len())].to_vec();
                lane.push(Item::end(due, part, End::Planned(Then::Cut)));
            }
            Some(Fate::Duplicated { after, answer }) => match answer {
                Answer::First => {
                    lane.push(send(due, ReplyFate::Arrives));
                    let second = send(due + after, ReplyFate::Swallowed);
                    if after.is_zero() {
                        lane.push(second);
                    } else {
                        lane.pass(second);
                    }
                }
                Answer::Second => {
                    lane.push(send(due, ReplyFate::Swallowed));
                    lane.push(send(due + after, ReplyFate::Arrives));
                }
            },
            Some(Fate::LateReply(delay)) => lane.push(send(due, ReplyFate::Late(delay))),
            Some(Fate::LateRequest(delay)) => lane.push(send(due + delay, ReplyFate::Arrives)),
            Some(Fate::LostReply(then)) => lane.push(send(due, ReplyFate::Lost(then))),
            Some(Fate::LostRequest(then)) => {
                lane.push(Item::end(due, Vec::new(), End::Planned(then)));
            }
        }
        true
    }

    /// Called when a command leaves for the server, before it does.
    pub(super) fn sent(&self, awaited: Awaited) {
        let mut queue = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(awaited);
    }

    /// Puts what the server sent into the lane by its fate.
    pub(super) fn reply(&self, reply: &Reply, bytes: &[u8], due: Instant, lane: &Lane<()>) {
        if self.is_message(reply) {
            return self.message(reply, bytes, due, lane);
        }
        let bytes = bytes.to_vec();
        match self.fate_of(reply) {
            ReplyFate::Arrives => lane.push(Item::bytes(due, bytes)),
            ReplyFate::Cut(length) => {
                let part = bytes[..length.min(bytes.len())].to_vec();
                lane.push(Item::end(due, part, End::Planned(Then::Cut)));
            }
            ReplyFate::Late(delay) => lane.push(Item::bytes(due + delay, bytes)),
            ReplyFate::Lost(then) => {
                lane.push(Item::end(due, Vec::new(), End::Planned(then)));
            }
            ReplyFate::Swallowed => {}
        }
    }

    fn message(&self, reply: &Reply, bytes: &[u8], due: Instant, lane: &Lane<()>) {
        let item = |due| Item::bytes(due, bytes.to_vec());
        match self.plans.meet_push(reply.items()) {
            None => lane.pass(item(due)),
            Some(PushFate::Doubled) => {
                lane.pass(item(due));
                lane.pass(item(due));
            }
            Some(PushFate::Late(delay)) => lane.pass(item(due + delay)),
            Some(PushFate::Lost) => {}
        }
    }

    /// Whether nobody on this connection awaits it.
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
        let queue = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        queue.front().is_some_and(|awaited| awaited.subscribes)
    }

    fn fate_of(&self, reply: &Reply) -> ReplyFate {
        let mut queue = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(awaited) = queue.front_mut() else {
            return ReplyFate::Arrives;
        };
        let fate = awaited.fate;
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

/// The kinds of messages that RESP2 has as arrays.
const MESSAGES: [&str; 3] = ["message", "pmessage", "smessage"];
