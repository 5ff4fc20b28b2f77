use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polylock_core::engine::{LeaseId, Moment, Mutex};
use polylock_core::{Grant, LeaseControl, LockKey, LostReason, Released};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::pool::Reservation;
use crate::error::{SqlCause, SqlFailure};
use crate::table::TokenRange;

/// One connection that holds locks, as its users see it.
pub(crate) struct SessionHandle {
    pub(crate) id: LeaseId,
    commands: mpsc::UnboundedSender<SessionCommand>,
    /// When the last request was sent to which the session has replied, in nanoseconds.
    proven: AtomicU64,
    trusted_for: Duration,
    held_leases: Mutex<LeaseControls>,
}

#[derive(Default)]
struct LeaseControls {
    controls: HashMap<LeaseId, LeaseControl>,
    is_over: bool,
}

/// Commands to a session. They run one after the other, each to its end. If the caller is gone, the
/// effect is undone.
pub(super) enum SessionCommand {
    Downgrade {
        id: LeaseId,
        reply: oneshot::Sender<Result<(), SqlFailure>>,
    },
    Draw {
        id: LeaseId,
        reply: oneshot::Sender<Result<Option<TokenRange>, SqlFailure>>,
    },
    Release {
        id: LeaseId,
        reply: oneshot::Sender<Result<Released, SqlFailure>>,
    },
    /// Ends the session, which has no reservations left.
    Retire {
        reply: oneshot::Sender<()>,
    },
    Take(Box<SessionRequest>),
    /// Records all holders, for a caller that is about to list them.
    Record {
        reply: oneshot::Sender<()>,
    },
}

pub(crate) struct SessionRequest {
    pub(super) reservation: Reservation,
    pub(super) key: LockKey,
    pub(super) id: LeaseId,
    pub(super) is_shared: bool,
    pub(super) label: String,
    pub(super) ttl: Duration,
    /// Whether it keeps new shared holders out.
    pub(super) has_claimed: bool,
    /// The end of the wait; `None` for an attempt that does not wait.
    pub(super) until: Option<Instant>,
    pub(super) reply: oneshot::Sender<Result<SessionReply, SqlFailure>>,
    /// Dropped with the take, when nothing is left to undo.
    pub(super) _end: oneshot::Sender<()>,
}

/// The reply to a release that its session has begun. A session that ends without a reply may have sent the
/// release.
pub(super) struct SessionReleaseReply(Option<oneshot::Sender<Result<Released, SqlFailure>>>);

impl SessionReleaseReply {
    pub(super) fn new(reply: oneshot::Sender<Result<Released, SqlFailure>>) -> Self {
        Self(Some(reply))
    }

    pub(super) fn send(mut self, released: Result<Released, SqlFailure>) {
        if let Some(reply) = self.0.take() {
            // The caller may be gone.
            drop(reply.send(released));
        }
    }
}

/// The task of the session has panicked, or its runtime has ended.
impl Drop for SessionReleaseReply {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            let failure = SqlFailure {
                cause: SqlCause::SessionOver,
                outcome_unknown: true,
            };
            drop(reply.send(Err(failure)));
        }
    }
}

pub(crate) enum SessionReply {
    /// The grant counts from when the server granted the lock, or earlier.
    Granted(Grant, SessionHold),
    /// Another session holds it; the reservation remains.
    Held(Reservation),
}

impl SessionHandle {
    pub(super) fn new(
        id: LeaseId,
        commands: mpsc::UnboundedSender<SessionCommand>,
        trusted_for: Duration,
    ) -> Self {
        Self {
            id,
            commands,
            proven: AtomicU64::new(0),
            trusted_for,
            held_leases: Mutex::default(),
        }
    }

    /// Sends a command. Its reply never comes if the session is over.
    pub(super) fn send<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> SessionCommand,
    ) -> oneshot::Receiver<T> {
        let (reply, answer) = oneshot::channel();
        drop(self.commands.send(command(reply)));
        answer
    }

    pub(crate) fn is_over(&self) -> bool {
        self.held_leases.lock().is_over
    }

    /// The session has replied to a request sent at `sent`.
    pub(super) fn prove(&self, sent: Moment) {
        let sent = sent.as_nanos();
        if self.proven.fetch_max(sent, Ordering::Relaxed) >= sent {
            return;
        }
        let controls: Vec<_> = self.held_leases.lock().controls.values().cloned().collect();
        let deadline = self.trusted_until();
        for control in controls {
            control.limit(deadline);
        }
    }

    /// How long the server keeps the session, as far as known.
    pub(super) fn trusted_until(&self) -> Moment {
        Moment::from_nanos(self.proven.load(Ordering::Relaxed)) + self.trusted_for
    }

    pub(crate) fn attach(&self, id: LeaseId, control: &LeaseControl) {
        let is_over = {
            let mut held_leases = self.held_leases.lock();
            if !held_leases.is_over {
                held_leases.controls.insert(id, control.clone());
            }
            held_leases.is_over
        };
        if is_over {
            control.lose(LostReason::SessionEnded);
        } else {
            control.limit(self.trusted_until());
        }
    }

    /// Whether it holds a lock that its caller knows of.
    pub(crate) fn has_holders(&self) -> bool {
        !self.held_leases.lock().controls.is_empty()
    }

    #[cfg(test)]
    pub(super) fn holders(&self) -> Vec<LeaseId> {
        self.held_leases.lock().controls.keys().copied().collect()
    }

    pub(crate) fn detach(&self, id: LeaseId) {
        self.held_leases.lock().controls.remove(&id);
    }

    /// Ends the session, and returns the locks that are still held in it.
    pub(super) fn end(&self) -> HashMap<LeaseId, LeaseControl> {
        let mut held_leases = self.held_leases.lock();
        held_leases.is_over = true;
        std::mem::take(&mut held_leases.controls)
    }
}

/// A lock in a session; dropping it releases the lock.
pub(crate) struct SessionHold {
    pub(super) reservation: Reservation,
    pub(super) id: LeaseId,
    pub(super) is_kept: bool,
}

impl SessionHold {
    pub(crate) fn session(&self) -> &SessionHandle {
        &self.reservation.session
    }

    /// Sends the release, which completes even if its reply is dropped.
    pub(super) fn release(mut self) -> SessionRelease {
        self.is_kept = false;
        SessionRelease {
            reply: self.send_release(),
            _hold: self,
        }
    }

    fn send_release(&self) -> oneshot::Receiver<Result<Released, SqlFailure>> {
        let id = self.id;
        let release = |reply| SessionCommand::Release { id, reply };
        self.session().send(release)
    }
}

impl Drop for SessionHold {
    fn drop(&mut self) {
        if self.is_kept {
            // Before the reservation is freed, so that the next user comes later. A shutdown waits.
            let released = self.send_release();
            let engine = self.reservation.engine();
            engine.spawn(async move { drop(released.await) });
        }
    }
}

/// A release that was sent. It keeps the reservation until the reply.
pub(super) struct SessionRelease {
    reply: oneshot::Receiver<Result<Released, SqlFailure>>,
    _hold: SessionHold,
}

impl SessionRelease {
    /// The reply, which comes once.
    pub(super) async fn replied(&mut self) -> Result<Released, SqlFailure> {
        let released = (&mut self.reply).await;
        // A session that ended before it began the release has lost the lock.
        released.unwrap_or(Ok(Released::AlreadyLost))
    }
}

/// The failure of a command whose session ended before it.
pub(super) fn ended() -> SqlFailure {
    SqlCause::SessionOver.into()
}
