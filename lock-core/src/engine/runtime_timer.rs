use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Engine;

/// A timer of the runtime that first polls it, or of the engine where there is no runtime.
///
/// A timer on the engine's thread would work everywhere, but would wake that thread twice per
/// release.
pub(super) struct RuntimeTimer<'a> {
    until: Instant,
    timer: Option<Timer>,
    /// Room for the timer of this runtime.
    sleep: Pin<&'a mut Option<Sleep>>,
}

enum Timer {
    Here(Id),
    RenewalScheduler(oneshot::Receiver<()>),
}

impl<'a> RuntimeTimer<'a> {
    pub(super) fn until(until: Instant, sleep: Pin<&'a mut Option<Sleep>>) -> Self {
        Self {
            until,
            timer: None,
            sleep,
        }
    }

    /// Whether this is another runtime than the one of the timer, which panics when that is gone.
    pub(super) fn has_moved(&self) -> bool {
        match &self.timer {
            Some(Timer::Here(id)) => current() != Some(*id),
            _ => false,
        }
    }

    pub(super) fn poll(&mut self, engine: &Engine, cx: &mut Context<'_>) -> Poll<()> {
        let (until, sleep) = (self.until, &mut self.sleep);
        let timer = self.timer.get_or_insert_with(|| match current() {
            Some(id) => {
                sleep.set(Some(sleep_until(until)));
                Timer::Here(id)
            }
            None => Timer::RenewalScheduler(on_the_scheduler(engine, until)),
        });
        match timer {
            Timer::Here(_) => match sleep.as_mut().as_pin_mut() {
                Some(sleep) => sleep.poll(cx),
                None => Poll::Pending,
            },
            Timer::RenewalScheduler(over) => Pin::new(over).poll(cx).map(drop),
        }
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
