//! Receives the grants that the server publishes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use polylock_core::engine::LeaseId;
use tokio::sync::watch;

use crate::locked;
use crate::reply::is_token;

/// The listening waiters of this process, with the last message for each.
#[derive(Debug, Default)]
pub(crate) struct GrantNotifications(Mutex<HashMap<LeaseId, watch::Sender<Notification>>>);

/// A message for a waiter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Notification {
    /// The server granted the lock while the client waited; `beat` is the last heartbeat that it knew of.
    Granted { beat: u32, token: u64 },
    /// Messages may have been lost: the waiter must poll.
    Interrupted,
}

impl GrantNotifications {
    /// Listens for a waiter until the returned receiver is dropped.
    pub(crate) fn listen(self: &Arc<Self>, id: LeaseId) -> GrantReceiver {
        // Seen from the beginning.
        let (sender, events) = watch::channel(Notification::Interrupted);
        locked(&self.0).insert(id, sender);
        GrantReceiver {
            notifications: Arc::clone(self),
            id,
            events,
        }
    }

    /// Delivers a message `<id>|<heartbeat>|<token>`, and ignores all others.
    pub(crate) fn deliver(&self, payload: &[u8]) {
        let Some((id, granted)) = read(payload) else {
            return;
        };
        // Without a receiver, the waiter was granted the lock by a reply, or has given up. If it gave
        // up, it releases the lock: the release is armed before the first request.
        let waiter = locked(&self.0).get(&id).cloned();
        if let Some(waiter) = waiter {
            waiter.send_replace(granted);
        }
    }

    /// Makes all waiters poll: messages may have been lost, or a new master may not know of grants that
    /// were not read yet.
    pub(crate) fn interrupt(&self) {
        // Outside of the mutex: a notified waiter may run at once, and listen or stop.
        let waiters: Vec<_> = locked(&self.0).values().cloned().collect();
        for waiter in waiters {
            waiter.send_replace(Notification::Interrupted);
        }
    }
}

/// A waiter that listens.
#[derive(Debug)]
pub(crate) struct GrantReceiver {
    notifications: Arc<GrantNotifications>,
    id: LeaseId,
    events: watch::Receiver<Notification>,
}

impl GrantReceiver {
    /// The next message for this waiter.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(crate) async fn next(&mut self) -> Notification {
        // The sender lives for as long as this one.
        drop(self.events.changed().await);
        *self.events.borrow_and_update()
    }
}

impl Drop for GrantReceiver {
    fn drop(&mut self) {
        locked(&self.notifications.0).remove(&self.id);
    }
}

fn read(payload: &[u8]) -> Option<(LeaseId, Notification)> {
    let mut parts = std::str::from_utf8(payload).ok()?.split('|');
    let id = LeaseId::from_hex(parts.next()?)?;
    let beat = parts.next()?.parse().ok()?;
    let token = parts
        .next()?
        .parse()
        .ok()
        .filter(|token| is_token(*token))?;
    parts
        .next()
        .is_none()
        .then_some((id, Notification::Granted { beat, token }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    fn id() -> LeaseId {
        LeaseId::from_hex(ID).unwrap()
    }

    #[tokio::test]
    async fn a_message_reaches_its_waiter_whenever_it_comes() {
        let notifications = Arc::new(GrantNotifications::default());
        let mut listening = notifications.listen(id());
        notifications.deliver(format!("{ID}|3|77").as_bytes());
        let granted = Notification::Granted { beat: 3, token: 77 };
        assert_eq!(listening.next().await, granted);
        notifications.interrupt();
        assert_eq!(listening.next().await, Notification::Interrupted);
        let pending = tokio::time::timeout(std::time::Duration::from_millis(10), listening.next());
        assert!(pending.await.is_err(), "a message came twice");
    }

    /// A resource that has seen it would refuse every later holder.
    #[test]
    fn a_message_with_a_token_that_no_server_draws_is_none() {
        let of_token = |token: u64| read(format!("{ID}|3|{token}").as_bytes());
        let last = (1 << 53) - 1;
        let granted = Notification::Granted {
            beat: 3,
            token: last,
        };
        assert_eq!(of_token(last), Some((id(), granted)));
        for token in [0, last + 1, u64::MAX] {
            assert_eq!(of_token(token), None, "token {token}");
        }
    }

    #[tokio::test]
    async fn a_grant_of_the_old_master_is_not_taken_for_one_of_the_new() {
        let notifications = Arc::new(GrantNotifications::default());
        let mut listening = notifications.listen(id());
        notifications.deliver(format!("{ID}|3|77").as_bytes());
        notifications.interrupt();
        assert_eq!(listening.next().await, Notification::Interrupted);
        notifications.deliver(format!("{ID}|4|78").as_bytes());
        let granted = Notification::Granted { beat: 4, token: 78 };
        assert_eq!(listening.next().await, granted);
    }

    #[test]
    fn what_is_not_for_us_is_dropped() {
        let notifications = Arc::new(GrantNotifications::default());
        let listening = notifications.listen(id());
        for payload in [
            &b"\xff\xfe"[..],
            b"",
            b"ready",
            b"0001|1|1",
            b"000102030405060708090a0b0c0d0e0f|1|-1",
            b"000102030405060708090a0b0c0d0e0f|1|1|1",
            b"100102030405060708090a0b0c0d0e0f|1|1",
        ] {
            notifications.deliver(payload);
            let is_told = listening.events.has_changed();
            assert!(!is_told.expect("it listens"), "{payload:?}");
        }
        drop(listening);
        notifications.deliver(format!("{ID}|1|1").as_bytes());
        assert_eq!(locked(&notifications.0).len(), 0);
    }

    #[test]
    fn a_waiter_that_stops_takes_no_memory() {
        let notifications = Arc::new(GrantNotifications::default());
        drop(notifications.listen(id()));
        assert_eq!(locked(&notifications.0).len(), 0);
    }
}
