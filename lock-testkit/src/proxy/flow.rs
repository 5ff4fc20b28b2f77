use std::time::Duration;

use tokio::sync::watch;

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
    pub(super) replies: Gate,
    pub(super) requests: Gate,
}

/// What all connections have in common in one direction.
#[derive(Default)]
pub(super) struct Gate {
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

    fn gates(&self, direction: Direction) -> Vec<&Gate> {
        match direction {
            Direction::Both => vec![&self.replies, &self.requests],
            Direction::Replies => vec![&self.replies],
            Direction::Requests => vec![&self.requests],
        }
    }
}

impl Gate {
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
