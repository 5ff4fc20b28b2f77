use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;

use tokio::runtime::Handle;

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
    static THREAD: OnceLock<OnRuntime> = OnceLock::new();
    THREAD.get_or_init(start_thread).clone()
}

fn start_thread() -> OnRuntime {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("BUG: a current-thread runtime needs no more than an epoll descriptor");
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("polylock-engine".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .expect("BUG: one thread per process can be started");
    OnRuntime(handle)
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
