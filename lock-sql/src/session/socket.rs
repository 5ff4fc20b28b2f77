//! The socket of a session: its end is the end of the locks.

use std::future::pending;

use tokio::task::{JoinHandle, spawn_blocking};

use super::actor::Actor;
use crate::wire::{Answer, Connection, Duplicate, find};

/// What is known of the socket of a session.
pub(super) enum Socket {
    /// The port at our end, as the server sees it.
    At(Option<u16>),
    /// It is looked for.
    Sought(JoinHandle<Option<Duplicate>>),
    /// The connection has it, if there is one.
    Found,
}

impl Socket {
    /// Returns when a search has ended.
    pub(super) async fn found(&mut self) -> Option<Duplicate> {
        match self {
            Self::Sought(sought) => sought.await.ok().flatten(),
            Self::At(_) | Self::Found => pending().await,
        }
    }
}

impl Actor {
    /// Something is asked for, whose answer tells.
    pub(super) fn stop_watching(&mut self) {
        self.watch_at = None;
        if let Some(connection) = &mut self.connection {
            connection.stop_watching();
        }
    }

    /// Watches the socket of a session that nothing is asked of for more than a moment. A pooler closes
    /// its own.
    pub(super) fn watch(&mut self) {
        self.watch_at = None;
        if self.terms.target.is_pooled() {
            return;
        }
        match self.socket {
            Socket::At(Some(local)) => {
                let remote = self.terms.target.port();
                let sought = spawn_blocking(move || find(local, remote));
                self.socket = Socket::Sought(sought);
            }
            Socket::Found => {
                if let Some(connection) = &mut self.connection {
                    connection.watch();
                }
            }
            Socket::At(None) | Socket::Sought(_) => {}
        }
    }
}

/// Returns when the server has closed a connection that is watched.
pub(super) async fn closed(connection: Option<&Connection>) {
    match connection {
        Some(connection) => connection.ended().await,
        None => pending().await,
    }
}

/// The port of the client, in the last row of the answer to a setup.
pub(super) fn client_port(answer: &Answer) -> Option<u16> {
    let value = answer.rows.last()?.get(2)?;
    let of_text = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    let port = value.int().and_then(|port| u16::try_from(port).ok());
    port.or_else(|| of_text(value.bytes()?))
        .filter(|port| *port > 0)
}
