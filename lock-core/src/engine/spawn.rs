use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle};

use super::mutex::Mutex;
use crate::error::{Error, ErrorKind, Result};

/// A boxed future without a result.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the scheduler and background releases run.
pub trait Spawn: fmt::Debug + Send + Sync + 'static {
    /// Runs the task to its end, from any thread.
    fn spawn(&self, task: Task);

    /// Calls `poll` where the task may use the timers and sockets of the runtime.
    fn enter(&self, poll: &mut dyn FnMut());
}

/// The runtime of a thread of this process that runs only the scheduler, sessions and background releases, so
/// that user code that blocks its own runtime loses no locks. Started at the first call; one that fails panics,
/// and the next call tries again.
pub(super) fn own_thread() -> OnRuntime {
    let thread = started_thread();
    thread.expect("BUG: a process has room for one thread and the descriptors of its runtime")
}

fn started_thread() -> io::Result<OnRuntime> {
    static THREAD: OnceLock<OnRuntime> = OnceLock::new();
    static START: Mutex<()> = Mutex::new(());
    if let Some(started) = THREAD.get() {
        return Ok(started.clone());
    }
    let _alone = START.lock();
    match THREAD.get() {
        Some(started) => Ok(started.clone()),
        None => {
            let started = start_thread(thread::Builder::new())?;
            Ok(THREAD.get_or_init(|| started).clone())
        }
    }
}

/// The process that has started the thread; 0 before that.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Fails in a process that cannot start the thread, and in one that was forked from the one that has started it,
/// since threads are not forked. For calls that connect: to ask for the process takes as long as a tenth of an
/// acquisition in memory.
pub(crate) fn check_process() -> Result<()> {
    refuse_forked(PROCESS.load(Ordering::Relaxed), std::process::id())?;
    let started = started_thread().map(drop);
    started.map_err(|error| {
        let message = "cannot start the thread that renews locks";
        Error::new(ErrorKind::Unavailable, message).with_source(error)
    })
}

fn refuse_forked(started_by: u32, process: u32) -> Result<()> {
    if started_by == 0 || started_by == process {
        return Ok(());
    }
    let message = format!(
        "process {process} was forked after process {started_by} had connected, and has no \
         thread that renews locks: fork before the first connection, or start a program (exec)"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// The thread makes the runtime: one that no thread takes could not be dropped in async code.
fn start_thread(thread: thread::Builder) -> io::Result<OnRuntime> {
    let (made, runtime) = mpsc::sync_channel(1);
    let run = move || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            drop(made.send(Ok(runtime.handle().clone())));
            runtime.block_on(std::future::pending::<()>());
        }
        Err(error) => drop(made.send(Err(error))),
    };
    thread.name("polylock-engine".to_owned()).spawn(run)?;
    let handle = runtime.recv().map_err(io::Error::other)??;
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    Ok(OnRuntime(handle))
}

/// Runs tasks on a tokio runtime.
#[derive(Clone, Debug)]
pub struct OnRuntime(Handle);

impl OnRuntime {
    /// Takes the current runtime.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn current() -> Self {
        Self(Handle::current())
    }

    /// Runs a future on the calling thread, with the timers and sockets of the runtime.
    ///
    /// # Panics
    ///
    /// In async code.
    #[track_caller]
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }
}

impl Spawn for OnRuntime {
    fn spawn(&self, task: Task) {
        drop(self.0.spawn(task));
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        let _context = self.0.enter();
        poll();
    }
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_without_room_for_a_thread_gets_an_error() {
        let too_large = thread::Builder::new().stack_size(1 << 50);
        start_thread(too_large).expect_err("no machine has so much memory");
    }

    #[test]
    fn a_process_that_was_forked_after_the_thread_was_started_is_refused() {
        let here = std::process::id();
        assert!(refuse_forked(0, here).is_ok(), "no thread is started");
        let error = refuse_forked(here + 1, here).expect_err("the thread is another process's");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        own_thread();
        assert_eq!(PROCESS.load(Ordering::Relaxed), here);
        assert!(check_process().is_ok());
    }
}
