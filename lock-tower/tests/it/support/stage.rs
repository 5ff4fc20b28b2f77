use std::sync::{Arc, Mutex, PoisonError};

use polylock_core::FencingToken;
use polylock_tower::HeldLock;
use tokio::sync::Semaphore;

use super::{Handler, handler, until};

/// A handler that waits until the test lets it finish, and reports its events.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    events: Arc<Mutex<Vec<Event>>>,
    gate: Arc<Semaphore>,
}

/// What happened to a request that had the lock, by the token of that.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    Dropped(FencingToken),
    Entered(FencingToken),
    Finished(FencingToken),
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            events: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        }
    }

    pub(crate) fn handler(&self) -> Handler {
        let stage = self.clone();
        handler(move |held| {
            let stage = stage.clone();
            async move { stage.perform(&held).await }
        })
    }

    /// `POST /{key}`, behind the layer.
    #[cfg(feature = "axum")]
    pub(crate) fn router(&self, layer: polylock_tower::KeyLockLayer) -> axum::Router {
        let stage = self.clone();
        let handler = async move |held: HeldLock| stage.perform(&held).await;
        let handler = axum::routing::post(handler);
        axum::Router::new().route("/{key}", handler.layer(layer))
    }

    /// Lets this many requests finish, of the current and the next ones.
    pub(crate) fn let_go(&self, requests: usize) {
        self.gate.add_permits(requests);
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.clone()
    }

    /// Waits for this many events, and returns them.
    pub(crate) async fn happened(&self, events: usize) -> Vec<Event> {
        until(&format!("{events} things happen on the stage"), || {
            self.events().len() >= events
        })
        .await;
        self.events()
    }

    async fn perform(&self, held: &HeldLock) -> &'static str {
        let token = held.fencing_token().expect("the backend has tokens");
        self.note(Event::Entered(token));
        let mut inside = Inside {
            stage: self,
            token,
            finished: false,
        };
        let permit = self.gate.acquire().await.expect("it is never closed");
        permit.forget();
        inside.finished = true;
        "done"
    }

    fn note(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
    }
}

struct Inside<'a> {
    stage: &'a Stage,
    token: FencingToken,
    finished: bool,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.stage.note(match self.finished {
            true => Event::Finished(self.token),
            false => Event::Dropped(self.token),
        });
    }
}
