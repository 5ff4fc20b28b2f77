use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::engine::{LeaseId, Mutex, TokenBlock};
use polylock_core::{
    Error, ErrorKind, FencingToken, Lease, LeaseControl, Liveness, LockKey, LostReason, Released,
    Result,
};
use tokio::sync::oneshot;

use super::context::SessionContext;
use super::handle::{SessionCommand, SessionHold, SessionRelease};
use super::loss_report::is_broken;
use crate::error::SqlFailure;

/// A lock that lives with a session.
pub(super) struct SessionLease {
    id: LeaseId,
    key: LockKey,
    context: Arc<SessionContext>,
    can_downgrade: bool,
    /// None once its release is sent.
    hold: Mutex<Option<SessionHold>>,
    /// For the next holders.
    tokens: TokenBlock,
    /// The release without a reply: one that is repeated waits for the reply to the first.
    releasing: tokio::sync::Mutex<Option<SessionRelease>>,
}

impl SessionLease {
    pub(super) fn new(
        hold: SessionHold,
        key: LockKey,
        context: Arc<SessionContext>,
        can_downgrade: bool,
    ) -> Self {
        Self {
            id: hold.id,
            key,
            context,
            can_downgrade,
            hold: Mutex::new(Some(hold)),
            tokens: TokenBlock::default(),
            releasing: tokio::sync::Mutex::default(),
        }
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, SqlFailure>>) -> SessionCommand,
    ) -> Result<T> {
        let ended = || Error::lost(LostReason::SessionEnded);
        let answer = {
            let hold = self.hold.lock();
            let hold = hold.as_ref().ok_or_else(ended)?;
            hold.session().send(command)
        };
        Ok(answer.await.map_err(|_| ended())??)
    }
}

#[async_trait]
impl Lease for SessionLease {
    fn liveness(&self) -> Liveness {
        Liveness::Reported
    }

    fn attach(&self, control: LeaseControl) {
        if let Some(hold) = self.hold.lock().as_ref() {
            hold.session().attach(self.id, &control);
        }
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        if let Some(token) = self.tokens.next() {
            return Ok(Some(token));
        }
        let id = self.id;
        let drawn = self.ask(|reply| SessionCommand::Draw { id, reply }).await?;
        Ok(drawn.map(|drawn| self.tokens.begin(drawn.next, drawn.last)))
    }

    async fn downgrade(&self) -> Result<()> {
        if !self.can_downgrade {
            let message = "a lock of this mode and database stays exclusive";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let id = self.id;
        self.ask(|reply| SessionCommand::Downgrade { id, reply })
            .await
    }

    async fn release(&self) -> Result<Released> {
        let mut releasing = self.releasing.lock().await;
        if let Some(hold) = self.hold.lock().take() {
            hold.session().detach(self.id);
            *releasing = Some(hold.release());
        }
        let Some(release) = releasing.as_mut() else {
            return Ok(Released::AlreadyLost);
        };
        let released = release.replied().await;
        *releasing = None;
        match released {
            // The mark comes before the end of the session, and only a holder gets it.
            Err(failure)
                if failure.outcome_unknown
                    && is_broken(&self.context, self.id, &self.key).await =>
            {
                Ok(Released::AlreadyLost)
            }
            released => Ok(released?),
        }
    }
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.lock().as_ref() {
            hold.session().detach(self.id);
        }
    }
}

impl fmt::Debug for SessionLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionLease")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
