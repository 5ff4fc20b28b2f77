use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lock_core::engine::{Engine, before};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::Session;
use crate::checks::check;
use crate::config::ZooKeeperConfig;
use crate::error::Failure;

/// The one session of a client; another one in its place when it has ended.
pub(crate) struct Sessions {
    pub(crate) config: Arc<ZooKeeperConfig>,
    engine: Engine,
    current: watch::Sender<Current>,
}

enum Current {
    Live(Arc<Session>),
    /// Another one is being opened; why the last attempt failed.
    Opening(Option<Failure>),
}

impl Sessions {
    /// Opens the first session, and looks whether the ensemble is fit for locks.
    pub(crate) async fn open(
        config: ZooKeeperConfig,
        engine: &Engine,
    ) -> Result<Arc<Self>, Failure> {
        let sessions = Arc::new(Self {
            config: Arc::new(config),
            engine: engine.clone(),
            current: watch::Sender::new(Current::Opening(None)),
        });
        let session = sessions.open_session().await?;
        // One that has ended by now does not replace the next.
        sessions.current.send_if_modified(|current| {
            let is_live = !session.is_over();
            if is_live {
                *current = Current::Live(Arc::clone(&session));
            }
            is_live
        });
        check(&session.client, &sessions.config).await?;
        Ok(sessions)
    }

    async fn open_session(self: &Arc<Self>) -> Result<Arc<Session>, Failure> {
        Session::open(&self.config, &self.engine, Arc::downgrade(self)).await
    }

    /// The session, or the next one as soon as it is there.
    pub(crate) async fn get(&self, deadline: Instant) -> Result<Arc<Session>, Failure> {
        if let Some(live) = self.current.borrow().live() {
            return Ok(live);
        }
        let mut current = self.current.subscribe();
        let known = current.wait_for(Current::is_known);
        if let Some(Ok(known)) = before(deadline, known).await {
            match &*known {
                Current::Live(session) => return Ok(Arc::clone(session)),
                Current::Opening(failure) => {
                    if let Some(failure) = failure {
                        return Err(failure.clone());
                    }
                }
            }
        }
        let last = match &*self.current.borrow() {
            Current::Opening(Some(failure)) => failure.clone(),
            _ => Failure::silent(self.config.timeout),
        };
        Err(last)
    }

    /// Opens another session in the place of one that has ended.
    pub(super) fn open_again(this: &Weak<Self>) {
        let Some(sessions) = this.upgrade() else {
            return;
        };
        sessions.current.send_replace(Current::Opening(None));
        let this = Weak::clone(this);
        sessions.engine.spawn_service(insist(this));
    }
}

/// Tries to open a session until there is one, or no caller waits for it.
async fn insist(sessions: Weak<Sessions>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        match sessions.open_session().await {
            Ok(session) => {
                sessions.current.send_replace(Current::Live(session));
                return;
            }
            Err(failure) => {
                let error = lock_core::Error::from(failure.clone());
                tracing::warn!(%error, "no session with ZooKeeper");
                let opening = Current::Opening(Some(failure));
                sessions.current.send_replace(opening);
            }
        }
        let jittered = sessions.engine.jitter(pause / 2, pause);
        drop(sessions);
        sleep(jittered).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(5);

impl Current {
    fn live(&self) -> Option<Arc<Session>> {
        match self {
            Self::Live(session) if !session.is_over() => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// Whether there is no use in waiting.
    fn is_known(&self) -> bool {
        match self {
            Self::Live(session) => !session.is_over(),
            Self::Opening(failure) => failure.as_ref().is_some_and(|f| !f.is_retryable()),
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
