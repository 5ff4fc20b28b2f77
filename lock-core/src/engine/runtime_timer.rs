use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Engine;

/// A timer of the runtime that first polls it, or of the engine where there is no runtime.
///
/// A timer on the engine's thread would work everywhere, but would wake that thread twice per
/// release.
pub(super) struct RuntimeTimer {
    until: Instant,
    timer: Option<Timer>,
}

enum Timer {
    Here(Id, Pin<Box<Sleep>>),
    RenewalScheduler(oneshot::Receiver<()>),
}

impl RuntimeTimer {
    pub(super) fn until(until: Instant) -> Self {
        Self { until, timer: None }
    }

    /// Whether this is another runtime than the one of the timer, which panics when that is gone.
    pub(super) fn has_moved(&self) -> bool {
        match &self.timer {
            Some(Timer::Here(id, _)) => current() != Some(*id),
            _ => false,
        }
    }

    pub(super) fn poll(&mut self, engine: &Engine, cx: &mut Context<'_>) -> Poll<()> {
        let until = self.until;
        let timer = self.timer.get_or_insert_with(|| match current() {
            Some(id) => Timer::Here(id, Box::pin(sleep_until(until))),
            None => Timer::RenewalScheduler(on_the_scheduler(engine, until)),
        });
        match timer {
            Timer::Here(_, sleep) => ready!(sleep.as_mut().poll(cx)),
            Timer::RenewalScheduler(over) => drop(ready!(Pin::new(over).poll(cx))),
        }
        Poll::Ready(())
    }
}

fn current() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

fn on_the_scheduler(engine: &Engine, until: Instant) -> oneshot::Receiver<()> {
    let (mut timer, over) = oneshot::channel::<()>();
    engine.spawn_service(async move {
        tokio::select! {
            () = sleep_until(until) => {}
            () = timer.closed() => {}
        }
    });
    over
}
