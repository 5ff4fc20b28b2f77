use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::catch_panic::{catch_panic, isolated};
use super::spawn::{Spawn, Task};

/// Counts the background work of one backend, so that a shutdown can wait for it.
#[derive(Debug, Default)]
pub(super) struct Background {
    running: AtomicUsize,
    idle: Notify,
}

impl Background {
    /// Runs `task` to its end; nothing waits for it.
    ///
    /// The first poll happens here, so that work without I/O is done on return. Called from
    /// destructors: neither blocks nor panics, whatever runtime or none is current.
    pub(super) fn detach(self: &Arc<Self>, spawn: &dyn Spawn, mut task: Task) {
        let running = RunningTask::new(self);
        if let Some(Poll::Pending) = poll_once(spawn, task.as_mut()) {
            running.spawn(spawn, task);
        }
    }

    /// Starts `task` without polling it here.
    pub(super) fn spawn(self: &Arc<Self>, spawn: &dyn Spawn, task: Task) {
        RunningTask::new(self).spawn(spawn, task);
    }

    /// Waits until nothing runs; false if the time is over first.
    pub(super) async fn drain(&self, within: Duration) -> bool {
        let idle = async {
            loop {
                let idle = self.idle.notified();
                tokio::pin!(idle);
                // Listen before looking, or the last task could end in between.
                idle.as_mut().enable();
                if self.running.load(Ordering::SeqCst) == 0 {
                    return;
                }
                isolated(idle).await;
            }
        };
        tokio::time::timeout(within, idle).await.is_ok()
    }
}

/// Polls `work` here, with the timers and sockets of `spawn`; `None` if it panics.
pub(super) fn poll_once<T>(
    spawn: &dyn Spawn,
    mut work: Pin<&mut (dyn Future<Output = T> + Send)>,
) -> Option<Poll<T>> {
    let mut polled = Some(Poll::Pending);
    let enter = || {
        spawn.enter(&mut || {
            let poll = || work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            polled = catch_panic(poll);
        });
    };
    // A thread that is ending has no context to enter; the task then begins where it is spawned.
    let _ended = catch_panic(enter);
    polled
}

/// Counts down even when a runtime drops the task unfinished.
struct RunningTask(Arc<Background>);

impl RunningTask {
    fn new(background: &Arc<Background>) -> Self {
        background.running.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(background))
    }

    fn spawn(self, spawn: &dyn Spawn, task: Task) {
        spawn.spawn(Box::pin(async move {
            let _running = self;
            task.await;
        }));
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Called from destructors; a task that waits for a shutdown may have a waker that panics.
            let _woken = catch_panic(|| self.0.idle.notify_waiters());
        }
    }
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use std::pin::pin;
    use std::task::Wake;

    use super::super::spawn::OnRuntime;
    use super::*;

    /// A task that cannot be woken.
    struct Broken;

    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("the runtime of the task is gone");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_that_cannot_be_woken_costs_no_release_and_delays_no_other() {
        let background = Arc::new(Background::default());
        let other = RunningTask::new(&background);
        let mut shutdown = pin!(background.drain(Duration::from_secs(60)));
        let waker = Waker::from(Arc::new(Broken));
        let poll = shutdown.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending());
        let second = Arc::clone(&background);
        let second = tokio::spawn(async move { second.drain(Duration::from_secs(60)).await });
        tokio::task::yield_now().await;
        // As a guard that is dropped: its release is the last one that ends, before this returns.
        let begun = tokio::time::Instant::now();
        let release = Box::pin(async move { drop(other) });
        background.detach(&OnRuntime::current(), release);
        assert!(shutdown.await && second.await.expect("no panic"));
        assert_eq!(
            begun.elapsed(),
            Duration::ZERO,
            "until both shutdowns ended"
        );
    }
}
