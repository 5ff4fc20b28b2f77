//! Tasks of the engine that the callers who wake them may poll.
//!
//! A caller that hands a request to a task on another thread pays for two thread switches: one until the
//! request is written, and one until it has the answer. Here the caller polls the task itself, on its own
//! thread, and so writes the request. Every later poll is the engine's: nothing depends on whether the caller
//! goes on, is dropped, or blocks its runtime.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_task::Runnable;
use tokio::task::unconstrained;

use super::catch_panic::catch_panic;
use super::spawn::{Spawn, Task};

thread_local! {
    /// Tasks that were woken on this thread during [`poll_woken`]; `None` outside of it.
    static WOKEN: RefCell<Option<VecDeque<Woken>>> = const { RefCell::new(None) };
}

/// A task that is to be polled.
struct Woken {
    runnable: Runnable,
    spawn: Arc<dyn Spawn>,
}

impl Woken {
    /// Leaves it to the [`poll_woken`] of this thread, or to the engine.
    fn schedule(self) {
        let mut woken = Some(self);
        // An error says that the thread is ending.
        let _ended = WOKEN.try_with(|queue| {
            if let Some(queue) = queue.borrow_mut().as_mut() {
                queue.extend(woken.take());
            }
        });
        if let Some(woken) = woken {
            woken.poll_on_engine();
        }
    }

    fn poll_inline(self) {
        let Self { runnable, spawn } = self;
        let mut runnable = Some(runnable);
        let enter = || {
            spawn.enter(&mut || {
                // With the budget of the caller's task, the task could end up in a queue of the caller's runtime.
                let polled = unconstrained(async { runnable.take().map(Runnable::run) });
                let _ready = pin!(polled).poll(&mut Context::from_waker(Waker::noop()));
            });
        };
        // A task that panics is dropped by that.
        let _panicked = catch_panic(enter);
        // A thread that is ending has no context to enter.
        if let Some(runnable) = runnable {
            Self { runnable, spawn }.poll_on_engine();
        }
    }

    fn poll_on_engine(self) {
        let Self { runnable, spawn } = self;
        spawn.spawn(Box::pin(async move {
            runnable.run();
        }));
    }
}

/// A future whose destructor may panic; outside of a poll, that would abort the process.
struct CatchesDrop(Option<Task>);

impl Future for CatchesDrop {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(task) => task.as_mut().poll(cx),
            None => Poll::Ready(()),
        }
    }
}

impl Drop for CatchesDrop {
    fn drop(&mut self) {
        let task = self.0.take();
        let _panicked = catch_panic(|| drop(task));
    }
}

/// Makes a task, which is polled first by the [`poll_woken`] of this thread, or else by the engine.
pub(super) fn spawn(spawn: &Arc<dyn Spawn>, task: Task) {
    let spawn = Arc::clone(spawn);
    let schedule = move |runnable| {
        let spawn = Arc::clone(&spawn);
        Woken { runnable, spawn }.schedule();
    };
    let (runnable, task) = async_task::spawn(CatchesDrop(Some(task)), schedule);
    task.detach();
    runnable.schedule();
}

/// Calls `wake`, and polls here what it wakes of the tasks made by [`spawn`].
///
/// Called from destructors, whatever runtime or none is current.
pub(super) fn poll_woken<T>(wake: impl FnOnce() -> T) -> T {
    let begins = WOKEN.try_with(|queue| {
        let mut queue = queue.borrow_mut();
        let begins = queue.is_none();
        queue.get_or_insert_default();
        begins
    });
    // Within another call, that one polls; on a thread that is ending, the engine does.
    if !begins.unwrap_or(false) {
        return wake();
    }
    let leaves_rest = LeavesRest;
    let woke = wake();
    for _ in 0..MAX_INLINE_POLLS {
        match next_woken() {
            Some(woken) => woken.poll_inline(),
            None => break,
        }
    }
    drop(leaves_rest);
    woke
}

fn next_woken() -> Option<Woken> {
    let next = WOKEN.try_with(|queue| queue.borrow_mut().as_mut()?.pop_front());
    next.ok().flatten()
}

/// Leaves what was not polled to the engine, also when `wake` panics.
struct LeavesRest;

impl Drop for LeavesRest {
    fn drop(&mut self) {
        let rest = WOKEN.try_with(|queue| queue.borrow_mut().take());
        for woken in rest.ok().flatten().into_iter().flatten() {
            woken.poll_on_engine();
        }
    }
}

/// How many polls a caller makes for others. A task that keeps waking itself is left to the engine.
const MAX_INLINE_POLLS: usize = 8;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::Poll;
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::mpsc::UnboundedSender;
    use tokio::sync::oneshot;

    use super::super::Engine;
    use super::{Arc, Spawn, Task};

    fn engine() -> Engine {
        Engine::of_this_process("test")
    }

    /// A task that says on which thread it is polled, each time after the first, and what wakes it.
    fn task() -> (UnboundedSender<()>, mpsc::Receiver<ThreadId>) {
        let (wake, mut woken) = tokio::sync::mpsc::unbounded_channel();
        let (say, polled) = mpsc::channel();
        let task = async move {
            let mut is_first = true;
            poll_fn(move |cx| {
                while woken.poll_recv(cx).is_ready() || std::mem::take(&mut is_first) {
                    say.send(thread::current().id()).expect("the test listens");
                }
                Poll::<()>::Pending
            })
            .await;
        };
        engine().poll_woken(|| engine().spawn_inline(task));
        let here = thread::current().id();
        assert_eq!(polled.try_recv(), Ok(here), "polled where it is made");
        (wake, polled)
    }

    fn runtime() -> Runtime {
        let builder = Builder::new_current_thread().enable_all().build();
        builder.expect("a runtime can be built")
    }

    #[test]
    fn a_task_is_polled_where_it_is_made_and_woken() {
        let here = thread::current().id();
        let (wake, polled) = task();
        engine().poll_woken(|| wake.send(())).unwrap();
        assert_eq!(polled.try_recv(), Ok(here), "woken in `poll_woken`");
        wake.send(()).unwrap();
        let elsewhere = polled.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_ne!(elsewhere, here, "woken by a caller that does not poll");
    }

    #[test]
    fn a_call_within_another_leaves_the_polls_to_that() {
        let here = thread::current().id();
        let (wake, polled) = task();
        engine().poll_woken(|| {
            engine().poll_woken(|| wake.send(())).unwrap();
            assert!(polled.try_recv().is_err(), "polled in the midst of a call");
        });
        assert_eq!(polled.try_recv(), Ok(here));
    }

    #[test]
    fn a_task_that_wakes_itself_again_and_again_is_the_engines() {
        let (say, polled) = mpsc::channel();
        let task = async move {
            let mut left = 1_000;
            poll_fn(move |cx| {
                say.send(thread::current().id()).expect("the test listens");
                left -= 1;
                cx.waker().wake_by_ref();
                if left == 0 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        };
        engine().poll_woken(|| engine().spawn_inline(task));
        let polls: Vec<_> = polled.iter().collect();
        let here = thread::current().id();
        let polls_here = polls.iter().filter(|&&at| at == here).count();
        assert_eq!((polls_here, polls.len()), (super::MAX_INLINE_POLLS, 1_000));
    }

    #[test]
    fn a_task_that_panics_ends_alone() {
        let (reply, answer) = oneshot::channel::<()>();
        let panics = async move {
            let _reply = reply;
            panic!("a bug of a backend");
        };
        engine().poll_woken(|| engine().spawn_inline(panics));
        assert!(answer.blocking_recv().is_err(), "the task is dropped");
        // The next one is polled here as before.
        let (_wake, _polled) = task();
    }

    #[test]
    fn a_caller_that_panics_leaves_what_it_woke_to_the_engine() {
        let (wake, polled) = task();
        let call = || {
            engine().poll_woken(|| {
                wake.send(()).unwrap();
                panic!("a bug of a caller");
            });
        };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        assert!(caught.is_err());
        let elsewhere = polled.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_ne!(elsewhere, thread::current().id());
    }

    #[test]
    fn a_task_that_sleeps_goes_with_its_runtime() {
        let runtime = runtime();
        let (reply, mut answer) = oneshot::channel::<()>();
        runtime.block_on(async {
            let engine = Engine::on_current_runtime("test");
            let task = async move {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                drop(reply);
            };
            engine.poll_woken(|| engine.spawn_inline(task));
        });
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        drop(runtime);
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    /// A task of the caller's that has used up what tokio lets it do before it yields.
    #[test]
    fn the_budget_of_the_caller_is_not_that_of_the_task() {
        let runtime = runtime();
        let (wake, polled) = task();
        runtime.block_on(async {
            while tokio::task::coop::has_budget_remaining() {
                tokio::task::coop::consume_budget().await;
            }
            engine().poll_woken(|| wake.send(())).unwrap();
            // The runtime is blocked until the task was polled.
            let at = polled.recv_timeout(Duration::from_secs(10));
            assert_eq!(at, Ok(thread::current().id()));
        });
    }

    #[test]
    fn a_task_that_cannot_be_polled_here_is_polled_by_the_engine() {
        #[derive(Debug)]
        struct CannotEnter(tokio::runtime::Handle);
        impl Spawn for CannotEnter {
            fn spawn(&self, task: Task) {
                drop(self.0.spawn(task));
            }
            fn enter(&self, _poll: &mut dyn FnMut()) {
                panic!("as on a thread that is ending");
            }
        }
        let runtime = runtime();
        let (reply, answer) = oneshot::channel();
        let cannot_enter: Arc<dyn Spawn> = Arc::new(CannotEnter(runtime.handle().clone()));
        let task = async move { reply.send(()).unwrap() };
        super::poll_woken(|| super::spawn(&cannot_enter, Box::pin(task)));
        assert_eq!(runtime.block_on(answer), Ok(()));
    }

    /// As a guard that is kept in a thread-local variable does.
    #[test]
    fn a_thread_that_is_ending_can_wake() {
        struct WakesAtTheEnd(UnboundedSender<()>);
        impl Drop for WakesAtTheEnd {
            fn drop(&mut self) {
                engine().poll_woken(|| self.0.send(())).unwrap();
            }
        }
        thread_local! {
            static KEPT: std::cell::RefCell<Option<WakesAtTheEnd>> = const { std::cell::RefCell::new(None) };
        }
        let (wake, polled) = task();
        let ending = thread::spawn(move || {
            KEPT.with_borrow_mut(|kept| *kept = Some(WakesAtTheEnd(wake)));
            // Its destructor comes before that of the one above.
            engine().poll_woken(|| ());
        });
        ending.join().unwrap();
        polled.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
