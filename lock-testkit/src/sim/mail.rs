//! Grants that the store sends to a waiter unasked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use lock_core::engine::LeaseId;
use tokio::sync::Notify;

use super::process::Process;
use crate::lock;

/// The mailboxes of one process.
pub(super) type Mail = BTreeMap<LeaseId, Arc<Mailbox>>;

/// A grant that the store sent to a waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pushed {
    pub(crate) token: u64,
    pub(crate) block_end: u64,
    /// The last beat of the waiter that the store had seen; the lease is younger than that.
    pub(crate) beat: u32,
}

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    grant: Mutex<Option<Pushed>>,
    arrived: Notify,
}

/// A mailbox that is closed on drop.
pub(crate) struct Listening {
    process: Arc<Process>,
    id: LeaseId,
    mailbox: Arc<Mailbox>,
}

impl Listening {
    /// Opens a mailbox.
    pub(crate) fn open(process: &Arc<Process>, id: LeaseId) -> Self {
        let mailbox = Arc::new(Mailbox::default());
        process.mail().insert(id, Arc::clone(&mailbox));
        Self {
            process: Arc::clone(process),
            id,
            mailbox,
        }
    }

    /// Waits for a grant. Dropped, it takes none.
    pub(crate) async fn grant(&self) -> Pushed {
        loop {
            let arrived = self.mailbox.arrived.notified();
            if let Some(grant) = lock(&self.mailbox.grant).take() {
                return grant;
            }
            arrived.await;
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
    pub(crate) fn deliver(&self, id: LeaseId, grant: Pushed) {
        let mailbox = self.mail().get(&id).cloned();
        if let Some(mailbox) = mailbox {
            *lock(&mailbox.grant) = Some(grant);
            mailbox.arrived.notify_one();
        }
    }
}
