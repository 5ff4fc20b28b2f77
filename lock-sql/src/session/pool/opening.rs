//! How the pool opens a session.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{SESSIONS, SessionEntry, SessionPool, SessionPoolState};
use crate::budget::RETRY_INTERVAL;
use crate::error::SqlFailure;
use crate::session::actor;

impl SessionPool {
    /// Opens another session, if the limit allows it. A request that can share it waits for the one
    /// being opened.
    pub(super) fn begin_to_open(
        self: &Arc<Self>,
        alone: bool,
    ) -> Option<oneshot::Receiver<Result<(), SqlFailure>>> {
        let (reply, opened) = oneshot::channel();
        {
            let mut state = self.state.lock();
            if let Some((until, failure)) = &state.refusal {
                if Instant::now() < *until {
                    drop(reply.send(Err(failure.clone())));
                    return Some(opened);
                }
                state.refusal = None;
            }
            if state.opening > 0 && !alone {
                state.subscribers.push(reply);
                return Some(opened);
            }
            if state.sessions.len() + state.opening >= self.context.connections {
                return None;
            }
            state.opening += 1;
        }
        let mut opening = Opening {
            pool: Arc::clone(self),
            is_counted: true,
            reply: Some(reply),
            result: None,
        };
        self.context.engine.spawn_service(async move {
            let pool = Arc::clone(&opening.pool);
            let result = pool.open(&mut opening).await;
            opening.end(result);
        });
        Some(opened)
    }

    async fn open(self: &Arc<Self>, opening: &mut Opening) -> Result<(), SqlFailure> {
        match actor::open(self).await {
            Ok((session, actor)) => {
                let mut sessions = SESSIONS.lock();
                sessions.retain(|session| session.strong_count() > 0);
                sessions.push(Arc::downgrade(&session));
                drop(sessions);
                {
                    let mut state = self.state.lock();
                    // In one step: a waiter that counts it twice would take the session that is kept for
                    // attempts.
                    opening.end_count(&mut state);
                    state.sessions.push(SessionEntry {
                        session,
                        keys: HashSet::new(),
                        attempts: 0,
                        alone: false,
                    });
                }
                // A span of its own, because any caller may poll it.
                let span = tracing::error_span!(parent: None, "sql_session");
                self.context.engine.spawn_inline(actor.instrument(span));
                Ok(())
            }
            Err(failure) => {
                // Its clients may delete their records meanwhile.
                if failure.is_restart() {
                    let until = Instant::now() + RETRY_INTERVAL;
                    self.state.lock().refusal = Some((until, failure.clone()));
                }
                Err(failure)
            }
        }
    }
}

/// A session that is being opened; ends with the attempt, also if a runtime drops that.
struct Opening {
    pool: Arc<SessionPool>,
    /// Whether [`SessionPoolState::opening`] counts it.
    is_counted: bool,
    reply: Option<oneshot::Sender<Result<(), SqlFailure>>>,
    result: Option<Result<(), SqlFailure>>,
}

impl Opening {
    fn end_count(&mut self, state: &mut SessionPoolState) {
        state.opening -= usize::from(std::mem::take(&mut self.is_counted));
    }

    fn end(mut self, result: Result<(), SqlFailure>) {
        self.result = Some(result);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let subscribers = {
            let pool = Arc::clone(&self.pool);
            let mut state = pool.state.lock();
            self.end_count(&mut state);
            std::mem::take(&mut state.subscribers)
        };
        self.pool.changed.notify_waiters();
        // Without a result, their ends of the channels are closed.
        let Some(result) = self.result.take() else {
            return;
        };
        for subscriber in subscribers.into_iter().chain(self.reply.take()) {
            drop(subscriber.send(result.clone()));
        }
    }
}
