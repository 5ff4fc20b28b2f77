use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Engine;

/// A timer that may move from one runtime to another, and out of all of them.
///
/// Work that gives a lock back can begin in a task and go on in the background. The timers of tokio
/// stay with the runtime that they were made on, and panic when it is gone; a timer on the keeper's
/// thread is safe, and wakes that thread twice for every release.
pub(super) struct Nap {
    until: Instant,
    timer: Option<Timer>,
}

enum Timer {
    Here(Id, Pin<Box<Sleep>>),
    Keeper(oneshot::Receiver<()>),
}

impl Nap {
    pub(super) fn until(until: Instant) -> Self {
        Self { until, timer: None }
    }

    pub(super) fn poll(&mut self, engine: &Engine, cx: &mut Context<'_>) -> Poll<()> {
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        let fits = match (&self.timer, here) {
            (Some(Timer::Here(id, _)), Some(here)) => *id == here,
            (Some(Timer::Keeper(_)), _) => true,
            _ => false,
        };
        if !fits {
            self.timer = None;
        }
        let until = self.until;
        let timer = self.timer.get_or_insert_with(|| match here {
            Some(id) => Timer::Here(id, Box::pin(sleep_until(until))),
            None => Timer::Keeper(on_the_keeper(engine, until)),
        });
        match timer {
            Timer::Here(_, sleep) => ready!(sleep.as_mut().poll(cx)),
            Timer::Keeper(over) => drop(ready!(Pin::new(over).poll(cx))),
        }
        Poll::Ready(())
    }
}

fn on_the_keeper(engine: &Engine, until: Instant) -> oneshot::Receiver<()> {
    let (mut timer, over) = oneshot::channel::<()>();
    engine.spawn_service(async move {
        tokio::select! {
            () = sleep_until(until) => {}
            () = timer.closed() => {}
        }
    });
    over
}
