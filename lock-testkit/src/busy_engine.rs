use std::sync::mpsc;
use std::time::Duration;

use polylock_core::engine::Engine;

/// Keeps the thread of the engine of this process from everything else, until it is dropped.
///
/// All work in the meantime is done by the threads of callers.
#[derive(Debug)]
pub struct BusyEngine {
    _end: mpsc::Sender<()>,
}

impl BusyEngine {
    /// Returns once the thread does nothing else.
    #[must_use]
    pub fn start() -> Self {
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        Engine::of_this_process("test").spawn(async move {
            let _caller_waits = begin.send(());
            // It is an error when the sender is dropped, or too late.
            let _is_over = ended.recv_timeout(LIMIT);
        });
        begun.recv_timeout(LIMIT).expect("the engine runs tasks");
        Self { _end: end }
    }
}

/// So that a test that does not drop it ends as well.
const LIMIT: Duration = Duration::from_secs(60);
