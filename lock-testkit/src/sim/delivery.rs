//! Requests, their answers and pushes between processes and store: each is an event in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylock_core::LockKey;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::message::{NoAnswer, SimPush, SimReply, SimRequest};
use super::net::{MessageDirection, Return};
use super::process::SimProcess;
use super::world::SimWorld;
use crate::lock;

/// The receiver of an answer; the copies of a request share it.
type ReplySender = Arc<Mutex<Option<oneshot::Sender<Result<SimReply, NoAnswer>>>>>;

impl SimWorld {
    /// Delivers what was posted, without end.
    pub(crate) async fn deliver(self: Arc<Self>) {
        loop {
            while let Some(parcel) = self.net.due(self.now()) {
                parcel();
            }
            self.net.wait(self.now()).await;
        }
    }

    /// Lets something happen after a time.
    pub(crate) fn after(
        self: &Arc<Self>,
        delay: Duration,
        act: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) {
        let world = Arc::clone(self);
        self.net.post(self.now() + delay, move || act(&world));
    }

    /// Sends a request to the store and waits for the answer.
    pub(crate) async fn call(
        self: &Arc<Self>,
        process: &SimProcess,
        request: SimRequest,
    ) -> Result<SimReply, NoAnswer> {
        if process.is_dead() {
            // Only a destructor of a dead process comes here.
            return std::future::pending().await;
        }
        let (sender, answer) = oneshot::channel();
        let sender = Arc::new(Mutex::new(Some(sender)));
        let fate = self.net.fate(&request, &self.log);
        for delay in fate.request {
            let (process, request, sender) =
                (process.number(), request.clone(), Arc::clone(&sender));
            self.after(delay, move |world| {
                world.arrive(process, request, fate.reply, sender);
            });
        }
        // Keeps the connection open while a request or its reply is lost, or else the client would
        // know at once.
        let lost = Arc::clone(&sender);
        let answered = timeout(self.plan.patience, answer).await;
        drop(lost);
        match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(NoAnswer::Reset),
            Err(_) => Err(NoAnswer::TimedOut),
        }
    }

    fn arrive(
        self: &Arc<Self>,
        process: usize,
        request: SimRequest,
        back: Return,
        sender: ReplySender,
    ) {
        if !self.net.passes(process, MessageDirection::ToStore) {
            return;
        }
        let (answer, pushes) = match self.store.handle(request) {
            Some((reply, pushes)) => (Ok(reply), pushes),
            None => (Err(NoAnswer::Refused), Vec::new()),
        };
        pushes.into_iter().for_each(|push| self.push(push));
        let (delay, answer) = match back {
            Return::After(delay) => (delay, answer),
            Return::Lost => return,
            Return::Reset(delay) => (delay, Err(NoAnswer::Reset)),
        };
        self.after(delay, move |world| {
            if world.net.passes(process, MessageDirection::FromStore)
                && let Some(sender) = lock(&sender).take()
            {
                // The client may be gone.
                drop(sender.send(answer));
            }
        });
    }

    /// Takes a key from its holders on the store.
    pub(crate) fn evict(self: &Arc<Self>, key: &LockKey) {
        let pushes = self.store.evict(key).into_iter();
        pushes.for_each(|push| self.push(push));
    }

    /// Sends a grant to a waiter that has not asked for it just now.
    fn push(self: &Arc<Self>, push: SimPush) {
        let Some(delay) = self.net.draw_push(&self.log) else {
            return;
        };
        self.after(delay, move |world| {
            if world.net.passes(push.process, MessageDirection::FromStore) {
                // A waiter that is gone undoes its claim itself.
                let _gone = push.waiter.send(push.grant);
            }
        });
    }
}
