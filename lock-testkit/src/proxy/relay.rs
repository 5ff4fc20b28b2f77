use tokio::time::Instant;

use super::lane::{ConnectionEnd, Item, Lane};
use super::plan::Plans;
use super::protocol::{Messages, Parsed, Protocol, ReplyFate, ServerMessage};
use super::{Command, Fate, PushFate, ReplyOrder, Then};

/// The state that both directions of one connection share.
pub(super) struct Relay<'a> {
    pub(super) plans: &'a Plans,
    pub(super) connection: usize,
    pub(super) protocol: Box<dyn Protocol>,
}

impl Relay<'_> {
    /// Applies the fate of the first request in the bytes, and queues it in the lane.
    pub(super) fn request(&self, bytes: &[u8], due: Instant, lane: &Lane) -> Parsed<()> {
        let (args, length) = self.protocol.request(bytes)?;
        let connection = self.connection;
        let fate = self.plans.meet(&Command { args, connection });
        Self::send(fate, &bytes[..length], due, lane);
        Ok(((), length))
    }

    fn send(fate: Option<Fate>, bytes: &[u8], due: Instant, lane: &Lane) {
        let send = |due, fate| Item::request(due, bytes.to_vec(), fate);
        match fate {
            None => lane.push(send(due, ReplyFate::Arrives)),
            Some(Fate::CutReply(length)) => lane.push(send(due, ReplyFate::Cut(length))),
            Some(Fate::CutRequest(length)) => {
                let part = bytes[..length.min(bytes.len())].to_vec();
                lane.push(Item::end(due, part, ConnectionEnd::PartlySent));
            }
            Some(Fate::Duplicated { after, answer }) => match answer {
                ReplyOrder::First => {
                    lane.push(send(due, ReplyFate::Arrives));
                    let second = send(due + after, ReplyFate::Swallowed);
                    if after.is_zero() {
                        lane.push(second);
                    } else {
                        lane.pass(second);
                    }
                }
                ReplyOrder::Second => {
                    lane.push(send(due, ReplyFate::Swallowed));
                    lane.push(send(due + after, ReplyFate::Arrives));
                }
            },
            Some(Fate::LateReply(delay)) => lane.push(send(due, ReplyFate::Late(delay))),
            Some(Fate::LateRequest(delay)) => lane.push(send(due + delay, ReplyFate::Arrives)),
            Some(Fate::LostReply(then)) => lane.push(send(due, ReplyFate::Lost(then))),
            Some(Fate::LostRequest(then)) => {
                lane.push(Item::end(due, Vec::new(), ConnectionEnd::Planned(then)));
            }
            Some(Fate::Replaced(by)) => lane.push(send(due, ReplyFate::Replaced(by))),
        }
    }

    /// Applies the fate of the first reply or message in the server's bytes, and queues it in the lane.
    pub(super) fn reply(&self, bytes: &[u8], due: Instant, lane: &Lane) -> Parsed<()> {
        let (said, length) = self.protocol.reply(bytes)?;
        let bytes = bytes[..length].to_vec();
        match said {
            ServerMessage::Message(items) => {
                let fate = self.plans.meet_push(&items);
                self.message(fate, &bytes, due, lane);
            }
            ServerMessage::Reply(fate) => Self::answer(fate, bytes, due, lane),
        }
        Ok(((), length))
    }

    fn answer(fate: ReplyFate, bytes: Vec<u8>, due: Instant, lane: &Lane) {
        match fate {
            ReplyFate::Arrives => lane.push(Item::bytes(due, bytes)),
            ReplyFate::Cut(length) => {
                let part = bytes[..length.min(bytes.len())].to_vec();
                lane.push(Item::end(due, part, ConnectionEnd::Planned(Then::Cut)));
            }
            ReplyFate::Late(delay) => lane.push(Item::bytes(due + delay, bytes)),
            ReplyFate::Lost(then) => {
                lane.push(Item::end(due, Vec::new(), ConnectionEnd::Planned(then)));
            }
            ReplyFate::Replaced(by) => lane.push(Item::bytes(due, by.into())),
            ReplyFate::Swallowed => {}
        }
    }

    fn message(&self, fate: Option<PushFate>, bytes: &[u8], due: Instant, lane: &Lane) {
        let deliver = |due| {
            let item = Item::bytes(due, bytes.to_vec());
            match self.protocol.messages() {
                Messages::InOrder => lane.push(item),
                Messages::Passing => lane.pass(item),
            }
        };
        match fate {
            None => deliver(due),
            Some(PushFate::Doubled) => {
                deliver(due);
                deliver(due);
            }
            Some(PushFate::Late(delay)) => deliver(due + delay),
            Some(PushFate::Lost) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Planned;
    use super::super::jute::Jute;
    use super::super::lane::FlowGate;
    use super::super::lane::lane;
    use super::*;

    fn frame(parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let length = u32::try_from(body.len()).expect("it is short");
        [&length.to_be_bytes()[..], &body].concat()
    }

    /// A client of ZooKeeper that has not seen the reply does not know of the watch.
    #[tokio::test(start_paused = true)]
    async fn an_event_does_not_overtake_a_late_reply() {
        let plans = Plans::default();
        let late = Planned::once(
            |command| command.is("EXISTS") && command.arg(1) == "/a" && command.arg(2) == "watch",
            Fate::LateReply(Duration::from_secs(60)),
        );
        crate::lock(&plans.planned).push(late.clone());
        let relay = Relay {
            plans: &plans,
            connection: 0,
            protocol: Box::<Jute>::default(),
        };
        let gate = FlowGate::default();
        let (requests, to_server) = lane();
        let (replies, to_client) = lane();
        let (now, path) = (Instant::now(), [0, 0, 0, 2, b'/', b'a']);
        let connect = frame(&[&[0; 28]]);
        let exists = frame(&[&1_i32.to_be_bytes(), &3_i32.to_be_bytes(), &path, &[1]]);
        for request in [&connect, &exists] {
            assert!(relay.request(request, now, &requests).is_ok());
        }
        requests.push(Item::end(now, Vec::new(), ConnectionEnd::Closed));
        let mut server = Vec::new();
        let sent = |request: &[u8], fate| relay.protocol.sent(request, fate);
        to_server.deliver(&mut server, &gate, sent).await;
        assert_eq!(server, [connect, exists].concat());
        assert_eq!(late.struck(), 1);

        let greeting = frame(&[&[0; 36]]);
        let reply = frame(&[&1_i32.to_be_bytes(), &[0; 12]]);
        let event = frame(&[&(-1_i32).to_be_bytes(), &[0; 12], &[0; 8], &path]);
        for answer in [&greeting, &reply, &event] {
            assert!(relay.reply(answer, now, &replies).is_ok());
        }
        replies.push(Item::end(now, Vec::new(), ConnectionEnd::Closed));
        let mut client = Vec::new();
        to_client.deliver(&mut client, &gate, |_, _| {}).await;
        assert_eq!(client, [greeting, reply, event].concat());
        assert!(now.elapsed() >= Duration::from_secs(60));
    }
}
