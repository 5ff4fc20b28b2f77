use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::Then;
use super::protocol::ReplyFate;

/// Queues the bytes that were read until their time. The order is kept, except for items that pass.
pub(super) struct Lane {
    ordered: UnboundedSender<Item>,
    passing: UnboundedSender<Item>,
}

pub(super) struct LaneExit {
    ordered: LaneQueue,
    passing: LaneQueue,
}

/// Bytes that leave at a time, or the end of the connection.
pub(super) struct Item {
    pub(super) due: Instant,
    pub(super) bytes: Vec<u8>,
    /// Of a whole request, what happens to its reply.
    pub(super) fate: Option<ReplyFate>,
    pub(super) end: Option<ConnectionEnd>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ConnectionEnd {
    /// Closed by the client or the server.
    Closed,
    /// By a plan, once the server has read what arrived: in another order it may execute a later request on
    /// another connection first.
    PartlySent,
    /// By a plan.
    Planned(Then),
}

pub(super) fn lane() -> (Lane, LaneExit) {
    let (ordered, ordered_exit) = unbounded_channel();
    let (passing, passing_exit) = unbounded_channel();
    let exit = LaneExit {
        ordered: LaneQueue::new(ordered_exit),
        passing: LaneQueue::new(passing_exit),
    };
    (Lane { ordered, passing }, exit)
}

impl Lane {
    // The receiver is dropped only with the whole connection; the item is lost then.
    pub(super) fn push(&self, item: Item) {
        drop(self.ordered.send(item));
    }

    pub(super) fn pass(&self, item: Item) {
        drop(self.passing.send(item));
    }
}

impl LaneExit {
    /// Delivers until the connection ends, and tells of each request before it leaves.
    pub(super) async fn deliver(
        mut self,
        mut to: impl AsyncWrite + Unpin,
        gate: &FlowGate,
        leaves: impl Fn(&[u8], ReplyFate),
    ) -> ConnectionEnd {
        loop {
            let item = tokio::select! {
                biased;
                item = self.passing.next() => item,
                item = self.ordered.next() => item,
            };
            gate.open().await;
            if let Some(fate) = item.fate {
                leaves(&item.bytes, fate);
            }
            // One that is broken ends by the reader of that side, which sees the same.
            write(&mut to, &item.bytes, gate).await.ok();
            if let Some(end) = item.end {
                return end;
            }
        }
    }
}

impl Item {
    pub(super) fn bytes(due: Instant, bytes: Vec<u8>) -> Self {
        Self {
            due,
            bytes,
            fate: None,
            end: None,
        }
    }

    pub(super) fn request(due: Instant, bytes: Vec<u8>, fate: ReplyFate) -> Self {
        Self {
            fate: Some(fate),
            ..Self::bytes(due, bytes)
        }
    }

    pub(super) fn end(due: Instant, bytes: Vec<u8>, end: ConnectionEnd) -> Self {
        Self {
            end: Some(end),
            ..Self::bytes(due, bytes)
        }
    }
}

struct LaneQueue {
    receiver: UnboundedReceiver<Item>,
    /// Taken out and not yet due.
    head: Option<Item>,
}

impl LaneQueue {
    fn new(receiver: UnboundedReceiver<Item>) -> Self {
        Self {
            receiver,
            head: None,
        }
    }

    /// Loses nothing when it is dropped: the head stays.
    async fn next(&mut self) -> Item {
        loop {
            if let Some(head) = &self.head {
                sleep_until(head.due).await;
            } else {
                self.head = self.receiver.recv().await;
            }
            match self.head.take_if(|head| head.due <= Instant::now()) {
                Some(head) => return head,
                None if self.head.is_none() => std::future::pending().await,
                None => {}
            }
        }
    }
}

async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    gate: &FlowGate,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let drip = gate.flow().drip;
        let piece = drip.map_or(bytes.len(), |(piece, _)| piece.min(bytes.len()));
        let (now, later) = bytes.split_at(piece);
        to.write_all(now).await?;
        if let Some((_, pause)) = drip {
            sleep(pause).await;
        }
        bytes = later;
    }
    Ok(())
}

/// The way of bytes.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// From the clients and from the server.
    Both,
    /// From the server.
    Replies,
    /// From the clients.
    Requests,
}

/// How bytes travel, one for each direction.
#[derive(Default)]
pub(super) struct Flows {
    pub(super) replies: FlowGate,
    pub(super) requests: FlowGate,
}

/// What all connections have in common in one direction.
#[derive(Default)]
pub(super) struct FlowGate {
    flow: watch::Sender<Flow>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Flow {
    pub(super) drip: Option<(usize, Duration)>,
    pub(super) held: bool,
    pub(super) latency: Duration,
}

impl Flows {
    pub(super) fn change(&self, direction: Direction, change: impl Fn(&mut Flow)) {
        for gate in self.gates(direction) {
            gate.flow.send_modify(&change);
        }
    }

    pub(super) fn clear(&self) {
        for gate in self.gates(Direction::Both) {
            gate.flow.send_replace(Flow::default());
        }
    }

    fn gates(&self, direction: Direction) -> Vec<&FlowGate> {
        match direction {
            Direction::Both => vec![&self.replies, &self.requests],
            Direction::Replies => vec![&self.replies],
            Direction::Requests => vec![&self.requests],
        }
    }
}

impl FlowGate {
    pub(super) fn flow(&self) -> Flow {
        *self.flow.borrow()
    }

    /// Waits while bytes are held back.
    pub(super) async fn open(&self) {
        let mut changes = self.flow.subscribe();
        // The sender lives as long as the gate.
        drop(changes.wait_for(|flow| !flow.held).await);
    }
}
