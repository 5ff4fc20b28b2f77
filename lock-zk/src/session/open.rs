//! Opens a session, and starts the task that keeps it alive.

use std::sync::{Arc, Mutex, Weak};

use polylock_core::engine::Engine;
use tokio::sync::{Notify, oneshot, watch};

use super::connect::open_session;
use super::heartbeat::send_heartbeats;
use super::state::{SessionPhase, ZkSessionState};
use super::timing::LivenessEvidence;
use super::watch_budget::WatchBudget;
use super::{ZkSession, ZkSessions};
use crate::config::ZooKeeperConfig;
use crate::error::ZkFailure;

impl ZkSession {
    /// Opens a session, which lasts as long as the value.
    ///
    /// It is a task of the engine, which callers poll when they send requests: neither the end of a caller's
    /// runtime nor code that blocks it ends the session.
    pub(super) async fn open(
        config: &Arc<ZooKeeperConfig>,
        engine: &Engine,
        sessions: Weak<ZkSessions>,
    ) -> Result<Arc<Self>, ZkFailure> {
        let (sender, receiver) = oneshot::channel();
        let (connect_config, clock) = (Arc::clone(config), engine.clone());
        engine.spawn_service(async move {
            let opened = open_session(&connect_config, &clock).await;
            // If the caller is gone, the client is dropped and closes the session.
            drop(sender.send(opened));
        });
        let opened = receiver.await;
        let (client, asked, negotiated) =
            opened.unwrap_or_else(|_| Err(ZkFailure::Malformed("no session".to_owned())))?;
        let evidence = LivenessEvidence::opened(client.session_timeout(), asked);
        let (states, unwatched) = (client.state_watcher(), Arc::<Notify>::default());
        let session = Arc::new(Self {
            client,
            engine: engine.clone(),
            negotiated,
            state: Mutex::new(ZkSessionState {
                phase: SessionPhase::Connected,
                evidence,
                broke: None,
            }),
            locks: Mutex::default(),
            unwatched: Arc::clone(&unwatched),
            watch_budget: WatchBudget::of(&config.root),
            over: watch::Sender::new(false),
            sessions,
        });
        engine.spawn_service(send_heartbeats(Arc::downgrade(&session), states, unwatched));
        Ok(session)
    }
}
