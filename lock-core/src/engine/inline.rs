//! Tasks of the engine that the callers who wake them may poll.
//!
//! A caller that hands a request to a task on another thread pays for two changes of threads: one until
//! the request is written, and one until it has the answer. Here it polls the task once itself, where it
//! stands, and so writes the request. From then on the task is the engine's: nothing depends on whether
//! the caller goes on, is dropped, or blocks its runtime.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use async_task::Runnable;

use super::catch_panic::catch_panic;
use super::spawn::Spawn;

thread_local! {
    /// What the call of [`poll_woken`] that this thread is in has woken.
    static WOKEN: RefCell<Option<VecDeque<Woken>>> = const { RefCell::new(None) };
}

/// A task that is to be polled.
struct Woken {
    runnable: Runnable,
    spawn: Arc<dyn Spawn>,
}

impl Woken {
    /// Leaves it to the call of [`poll_woken`] that this thread is in, or to the engine.
    fn schedule(self) {
        let mut woken = Some(self);
        // An error says that the thread is ending.
        let _ended = WOKEN.try_with(|queue| {
            if let Some(queue) = queue.borrow_mut().as_mut() {
                queue.extend(woken.take());
            }
        });
        if let Some(woken) = woken {
            woken.poll_there();
        }
    }

    fn poll_here(self) {
        let Self { runnable, spawn } = self;
        let mut runnable = Some(runnable);
        spawn.enter(&mut || {
            if let Some(runnable) = runnable.take() {
                // A task that panics is dropped by that.
                let _panicked = catch_panic(|| runnable.run());
            }
        });
    }

    fn poll_there(self) {
        let Self { runnable, spawn } = self;
        spawn.spawn(Box::pin(async move {
            runnable.run();
        }));
    }
}

/// Makes a task, and polls it here.
pub(super) fn spawn(spawn: &Arc<dyn Spawn>, task: impl Future<Output = ()> + Send + 'static) {
    let spawn = Arc::clone(spawn);
    let schedule = move |runnable| {
        let spawn = Arc::clone(&spawn);
        Woken { runnable, spawn }.schedule();
    };
    let (runnable, task) = async_task::spawn(task, schedule);
    task.detach();
    poll_woken(|| runnable.schedule());
}

/// Calls `wake`, and polls here what it wakes of the tasks made by [`spawn`].
///
/// Called from destructors: neither blocks nor panics, whatever runtime or none is current.
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
    let ends = End;
    let woke = wake();
    for _ in 0..MOST_POLLS {
        match pop() {
            // A thread that is ending has no context to enter.
            Some(woken) => drop(catch_panic(|| woken.poll_here())),
            None => break,
        }
    }
    drop(ends);
    woke
}

fn pop() -> Option<Woken> {
    WOKEN
        .try_with(|queue| queue.borrow_mut().as_mut()?.pop_front())
        .ok()?
}

/// Leaves the rest to the engine, also when `wake` panics.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let rest = WOKEN.try_with(|queue| queue.borrow_mut().take());
        for woken in rest.ok().flatten().into_iter().flatten() {
            woken.poll_there();
        }
    }
}

/// How many polls a caller makes for others at most: a task that wakes itself again and again is the engine's.
const MOST_POLLS: usize = 8;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::Poll;
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::super::Engine;

    fn engine() -> Engine {
        Engine::of_this_process("test")
    }

    /// A task that says on which thread it is polled, each time, and what wakes it.
    fn task() -> (
        tokio::sync::mpsc::UnboundedSender<()>,
        mpsc::Receiver<ThreadId>,
    ) {
        let (wake, mut woken) = tokio::sync::mpsc::unbounded_channel();
        let (say, polled) = mpsc::channel();
        engine().spawn_inline(async move {
            let mut is_first = true;
            poll_fn(move |cx| {
                while woken.poll_recv(cx).is_ready() || std::mem::take(&mut is_first) {
                    say.send(thread::current().id()).expect("the test listens");
                }
                Poll::<()>::Pending
            })
            .await;
        });
        (wake, polled)
    }

    #[test]
    fn a_task_is_polled_where_it_is_made_and_woken() {
        let here = thread::current().id();
        let (wake, polled) = task();
        assert_eq!(polled.try_recv(), Ok(here), "its first poll");
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
        assert_eq!(polled.try_recv(), Ok(here));
        engine().poll_woken(|| {
            engine().poll_woken(|| wake.send(())).unwrap();
            assert!(polled.try_recv().is_err(), "polled in the midst of a call");
        });
        assert_eq!(polled.try_recv(), Ok(here));
    }

    #[test]
    fn a_task_that_wakes_itself_again_and_again_is_the_engines() {
        let (say, polled) = mpsc::channel();
        engine().spawn_inline(async move {
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
        });
        let polls: Vec<_> = polled.iter().collect();
        let here = thread::current().id();
        let polls_here = polls.iter().filter(|&&at| at == here).count();
        assert_eq!((polls_here, polls.len()), (super::MOST_POLLS, 1_000));
    }

    #[test]
    fn a_task_that_panics_ends_alone() {
        let (reply, answer) = oneshot::channel::<()>();
        engine().spawn_inline(async move {
            let _reply = reply;
            panic!("a bug of a backend");
        });
        assert!(answer.blocking_recv().is_err(), "the task is dropped");
        let (_wake, polled) = task();
        assert_eq!(polled.try_recv(), Ok(thread::current().id()));
    }

    #[test]
    fn a_caller_that_panics_leaves_what_it_woke_to_the_engine() {
        let (wake, polled) = task();
        assert_eq!(polled.try_recv(), Ok(thread::current().id()));
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
    fn an_idle_task_goes_with_its_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (reply, mut answer) = oneshot::channel::<()>();
        runtime.block_on(async {
            Engine::on_current_runtime("test").spawn_inline(async move {
                tokio::time::sleep(Duration::from_secs(3_600)).await;
                drop(reply);
            });
        });
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        drop(runtime);
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    /// As a guard that is kept in a thread-local variable does.
    #[test]
    fn a_thread_that_is_ending_can_wake() {
        struct WakesAtTheEnd(tokio::sync::mpsc::UnboundedSender<()>);
        impl Drop for WakesAtTheEnd {
            fn drop(&mut self) {
                engine().poll_woken(|| self.0.send(())).unwrap();
            }
        }
        thread_local! {
            static KEPT: std::cell::RefCell<Option<WakesAtTheEnd>> = const { std::cell::RefCell::new(None) };
        }
        let (wake, polled) = task();
        assert_eq!(polled.try_recv(), Ok(thread::current().id()));
        let ending = thread::spawn(move || {
            KEPT.with_borrow_mut(|kept| *kept = Some(WakesAtTheEnd(wake)));
            // Its destructor comes before that of the one above.
            engine().poll_woken(|| ());
        });
        ending.join().unwrap();
        polled.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
