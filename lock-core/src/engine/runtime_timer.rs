use std::task::{Context, Poll};

use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::Engine;
use super::spawn::Task;

/// A timer of the current runtime, or of the engine where there is no runtime.
///
/// A timer on the engine's thread would work everywhere, but would wake that thread twice per
/// release.
pub(super) struct RuntimeTimer {
    runtime: Option<Id>,
    timer: Task,
}

impl RuntimeTimer {
    pub(super) fn until(until: Instant, engine: &Engine) -> Self {
        let runtime = current_runtime();
        let timer: Task = match runtime {
            Some(_) => Box::pin(sleep_until(until)),
            None => on_the_engine(engine, until),
        };
        Self { runtime, timer }
    }

    /// Whether this is another runtime than the one of the timer, which panics when that is gone.
    pub(super) fn has_moved(&self) -> bool {
        self.runtime.is_some() && self.runtime != current_runtime()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(cx)
    }
}

pub(crate) fn current_runtime() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

fn on_the_engine(engine: &Engine, until: Instant) -> Task {
    let (mut timer, over) = oneshot::channel::<()>();
    engine.spawn_service(async move {
        tokio::select! {
            () = sleep_until(until) => {}
            () = timer.closed() => {}
        }
    });
    Box::pin(async move { drop(over.await) })
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use std::sync::Arc;
    use std::task::{Wake, Waker};
    use std::thread::{self, Thread};
    use std::time::Duration;

    use super::*;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    fn a_task_without_a_runtime_is_woken_by_the_engine() {
        let begun = Instant::now();
        let wait = Duration::from_millis(30);
        let mut timer = RuntimeTimer::until(begun + wait, &Engine::of_this_process("memory"));
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut cx = Context::from_waker(&waker);
        while timer.poll(&mut cx).is_pending() {
            thread::park_timeout(Duration::from_secs(20));
            assert!(begun.elapsed() < Duration::from_secs(20), "it is not woken");
        }
        assert!(begun.elapsed() >= wait, "woken after {:?}", begun.elapsed());
        assert!(!timer.has_moved());
    }
}
