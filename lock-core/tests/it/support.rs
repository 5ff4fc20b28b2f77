use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::{Engine, OnRuntime, OsEntropy, VirtualClock};
use lock_core::memory::Memory;

/// Longest time that a test waits for what has to happen, virtual or real.
const DEADLINE: Duration = Duration::from_secs(300);

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn key() -> LockKey {
    LockKey::new("k").expect("is a key")
}

/// A store on the clock of the current runtime, which may stand still.
pub(crate) fn memory() -> Memory {
    Memory::with_engine(Engine::on_current_runtime("memory"))
}

/// An engine on a machine that can be suspended.
pub(crate) fn suspendable() -> (Engine, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new());
    let (entropy, spawn) = (OsEntropy::default(), OnRuntime::current());
    let engine = Engine::with(
        "memory",
        Arc::clone(&clock) as _,
        Arc::new(entropy),
        Arc::new(spawn),
    );
    (engine, clock)
}

/// Lets the other tasks run until none can go on without time passing.
pub(crate) async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

/// What `happens` returns; fails the test with `what` if that does not come.
#[track_caller]
pub(crate) fn in_time<F: IntoFuture>(
    what: &str,
    happens: F,
) -> impl Future<Output = F::Output> + use<'_, F> {
    let (caller, happens) = (Location::caller(), happens.into_future());
    async move {
        let outcome = tokio::time::timeout(DEADLINE, happens).await;
        outcome.unwrap_or_else(|_| panic!("{what} did not happen within {DEADLINE:?} ({caller})"))
    }
}
