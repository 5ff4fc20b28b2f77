//! Requests to the store and their answers.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::message::{Push, Reply, Request};
use super::net::{Direction, Return};
use super::process::Process;
use super::world::World;
use crate::lock;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoAnswer {
    /// Nothing listens; the request was not done.
    Refused,
    /// The connection broke.
    Reset,
    /// It takes too long.
    TimedOut,
}

impl NoAnswer {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Refused => "connection refused",
            Self::Reset => "connection reset",
            Self::TimedOut => "no answer in time",
        }
    }
}

impl World {
    /// Sends a request to the store and waits for the answer.
    pub(crate) async fn call(
        self: &Arc<Self>,
        process: &Arc<Process>,
        request: Request,
    ) -> Result<Reply, NoAnswer> {
        if process.is_dead() {
            // Only a destructor of a dead process comes here.
            return std::future::pending().await;
        }
        let (sender, answer) = oneshot::channel();
        let sender = Arc::new(Mutex::new(Some(sender)));
        let fate = self.net.draw(&self.log);
        let now = self.now();
        for delay in fate.request {
            let (world, process) = (Arc::clone(self), Arc::clone(process));
            let (request, sender) = (request.clone(), Arc::clone(&sender));
            self.net.post(now + delay, move || {
                world.arrive(&process, request, fate.reply, sender);
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
        process: &Arc<Process>,
        request: Request,
        back: Return,
        sender: Answer,
    ) {
        if !self.net.passes(process.number(), Direction::ToStore) {
            return;
        }
        let (answer, pushes) = match self.store.handle(request) {
            Some((reply, pushes)) => (Ok(reply), pushes),
            None => (Err(NoAnswer::Refused), Vec::new()),
        };
        pushes.iter().for_each(|push| self.push(push));
        let (delay, answer) = match back {
            Return::After(delay) => (delay, answer),
            Return::Lost => return,
            Return::Reset(delay) => (delay, Err(NoAnswer::Reset)),
        };
        let (world, process) = (Arc::clone(self), process.number());
        self.net.post(self.now() + delay, move || {
            if world.net.passes(process, Direction::FromStore)
                && let Some(sender) = lock(&sender).take()
            {
                // Whoever asked may have gone.
                drop(sender.send(answer));
            }
        });
    }

    /// Sends a grant to a waiter that has not asked for it just now.
    fn push(self: &Arc<Self>, push: &Push) {
        let Some(delay) = self.net.draw_push(&self.log) else {
            return;
        };
        let (world, number, id, grant) = (Arc::clone(self), push.process, push.id, push.grant);
        self.net.post(self.now() + delay, move || {
            if world.net.passes(number, Direction::FromStore)
                && let Some(process) = world.process(number)
            {
                process.deliver(id, grant);
            }
        });
    }
}

/// Where an answer goes; the copies of a request share it.
type Answer = Arc<Mutex<Option<oneshot::Sender<Result<Reply, NoAnswer>>>>>;
