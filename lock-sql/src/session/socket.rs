//! Watches the socket of a session: when it closes, the locks are lost.

use std::future::pending;

use tokio::task::{JoinHandle, spawn_blocking};

use super::actor::Actor;
use crate::wire::{Duplicate, Ends, QueryResult, ServerConnection, SocketWatch, find};

pub(super) enum SessionSocket {
    /// Its ends, as the server sees them, if they can identify it.
    At(Option<Ends>),
    Sought(JoinHandle<Option<Duplicate>>),
    /// The connection has it, if there is one.
    Found,
}

impl SessionSocket {
    /// Returns when a search has ended.
    pub(super) async fn found(&mut self) -> Option<Duplicate> {
        match self {
            Self::Sought(sought) => sought.await.ok().flatten(),
            Self::At(_) | Self::Found => pending().await,
        }
    }
}

impl Actor {
    /// A command runs, whose reply shows the state. A watch would cost something when the reply
    /// arrives.
    pub(super) fn stop_watching(&mut self) {
        self.watch_at = None;
        if let Some(connection) = &mut self.connection {
            connection.watch = None;
        }
    }

    /// Watches the socket of a session that is idle for more than a moment. A pooler closes its
    /// own.
    pub(super) fn watch(&mut self) {
        self.watch_at = None;
        if self.context.target.is_pooled() {
            return;
        }
        match &mut self.socket {
            SessionSocket::At(ends @ Some(_)) => {
                if let Some(ends) = ends.take() {
                    let sought = spawn_blocking(move || find(&ends));
                    self.socket = SessionSocket::Sought(sought);
                }
            }
            SessionSocket::Found => {
                if let Some(connection) = &mut self.connection
                    && connection.watch.is_none()
                {
                    connection.watch = connection.socket.as_ref().and_then(SocketWatch::of);
                }
            }
            SessionSocket::At(None) | SessionSocket::Sought(_) => {}
        }
    }
}

/// Returns when the server has closed a connection that is watched.
pub(super) async fn closed(connection: Option<&ServerConnection>) {
    match connection.and_then(|connection| connection.watch.as_ref()) {
        Some(watch) => watch.ended().await,
        None => pending().await,
    }
}

/// The ends of the connection, in the last row of the reply to a setup; `None` if the client connects to
/// a port other than the server's.
pub(super) fn ends(answer: &QueryResult, port: u16) -> Option<Ends> {
    let row = answer.rows.last()?;
    let text = |column: usize| std::str::from_utf8(row.get(column)?.bytes()?).ok();
    // An address may have colons of its own.
    let (client, client_port) = text(2)?.rsplit_once(':')?;
    let ends = Ends {
        client: client.to_owned(),
        client_port: client_port.parse().ok()?,
        server: match text(3) {
            Some(server) => Some(server.parse().ok()?),
            None => None,
        },
        server_port: row.get(4)?.int()?.try_into().ok()?,
    };
    (ends.server_port == port).then_some(ends)
}
