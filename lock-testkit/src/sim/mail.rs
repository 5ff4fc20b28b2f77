//! Grants that the store sends to a waiter unasked.

use std::collections::BTreeMap;
use std::sync::Arc;

use polylock_core::engine::LeaseId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::message::Granted;
use super::process::Process;

/// The mailboxes of one process.
pub(super) type Mail = BTreeMap<LeaseId, UnboundedSender<Granted>>;

/// A mailbox that is closed on drop.
pub(crate) struct Listening {
    process: Arc<Process>,
    id: LeaseId,
    grants: UnboundedReceiver<Granted>,
}

impl Listening {
    /// Opens a mailbox.
    pub(crate) fn open(process: &Arc<Process>, id: LeaseId) -> Self {
        let (mailbox, grants) = unbounded_channel();
        process.mail().insert(id, mailbox);
        let process = Arc::clone(process);
        Self {
            process,
            id,
            grants,
        }
    }

    /// Waits for a grant, without end in a process that is dead. Dropped, it takes none.
    pub(crate) async fn grant(&mut self) -> Granted {
        match self.grants.recv().await {
            Some(grant) => grant,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.process.mail().remove(&self.id);
    }
}

impl Process {
    /// Puts a grant into the mailbox of the waiter, if it still waits.
    pub(crate) fn deliver(&self, id: LeaseId, grant: Granted) {
        if let Some(mailbox) = self.mail().get(&id) {
            // A waiter that is gone takes its claim back by itself.
            let _gone = mailbox.send(grant);
        }
    }
}
