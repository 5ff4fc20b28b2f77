use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::engine::LeaseId;
use polylock_core::{
    Error, ErrorKind, FencingToken, Lease, LeaseControl, Liveness, LockKey, LostReason, Released,
    Result,
};
use tokio::sync::oneshot;

use super::context::SessionContext;
use super::handle::{SessionCommand, SessionHold, SessionRelease};
use super::loss_report::is_broken;
use crate::error::SqlFailure;
use crate::mutex::Mutex;
use crate::table::TokenRange;

/// A lock that lives with a session.
pub(super) struct SessionLease {
    id: LeaseId,
    key: LockKey,
    context: Arc<SessionContext>,
    can_downgrade: bool,
    /// None once its release is sent.
    state: Mutex<Option<SessionLeaseState>>,
    /// The release without a reply: one that is repeated waits for the reply to the first.
    releasing: tokio::sync::Mutex<Option<SessionRelease>>,
}

struct SessionLeaseState {
    hold: SessionHold,
    /// Tokens for the next holders.
    tokens: Option<TokenRange>,
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
            state: Mutex::new(Some(SessionLeaseState { hold, tokens: None })),
            releasing: tokio::sync::Mutex::default(),
        }
    }

    fn next_token(&self) -> Option<FencingToken> {
        let mut state = self.state.lock();
        let state = state.as_mut()?;
        let tokens = state.tokens?;
        state.tokens = tokens.rest();
        Some(FencingToken::new(tokens.next))
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, SqlFailure>>) -> SessionCommand,
    ) -> Result<T> {
        let ended = || Error::lost(LostReason::SessionEnded);
        let answer = {
            let state = self.state.lock();
            let state = state.as_ref().ok_or_else(ended)?;
            state.hold.session().send(command)
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
        if let Some(state) = self.state.lock().as_ref() {
            state.hold.session().attach(self.id, &control);
        }
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        if let Some(token) = self.next_token() {
            return Ok(Some(token));
        }
        let id = self.id;
        let drawn = self.ask(|reply| SessionCommand::Draw { id, reply }).await?;
        if let (Some(drawn), Some(state)) = (drawn, self.state.lock().as_mut()) {
            state.tokens = drawn.rest();
        }
        Ok(drawn.map(|drawn| FencingToken::new(drawn.next)))
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
        if let Some(SessionLeaseState { hold, .. }) = self.state.lock().take() {
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
        if let Some(state) = self.state.lock().as_ref() {
            state.hold.session().detach(self.id);
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
