use std::sync::Arc;

use polylock_core::engine::Task;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::context::ConnectionContext;
use crate::error::RedisFailure;
use polylock_core::engine::before;

/// A value that is made on demand, and made again after it became useless.
///
/// A task that no caller can cancel makes it. The callers share the value or the failure.
#[derive(Debug)]
pub(super) struct OnDemand<T> {
    state: watch::Sender<OnDemandState<T>>,
    shared: Arc<ConnectionContext>,
    /// The failure if the value is not ready in time.
    late: RedisFailure,
}

#[derive(Clone, Debug)]
enum OnDemandState<T> {
    Absent,
    /// The task that made the value was dropped with its runtime.
    Dropped,
    /// The next attempt waits for a backoff, so that callers do not start one each.
    Failed(RedisFailure, Instant),
    Making,
    Present(T),
}

impl<T: Clone + Send + Sync + 'static> OnDemand<T> {
    pub(super) fn new(shared: &Arc<ConnectionContext>, late: RedisFailure) -> Arc<Self> {
        Arc::new(Self {
            state: watch::Sender::new(OnDemandState::Absent),
            shared: Arc::clone(shared),
            late,
        })
    }

    pub(super) fn present(&self) -> Option<T> {
        match &*self.state.borrow() {
            OnDemandState::Present(it) => Some(it.clone()),
            _ => None,
        }
    }

    /// Whether the value exists and meets a condition.
    pub(super) fn is(&self, condition: impl FnOnce(&T) -> bool) -> bool {
        matches!(&*self.state.borrow(), OnDemandState::Present(it) if condition(it))
    }

    /// Changes the value; false if it does not exist, or is not `which`.
    pub(super) fn change(&self, which: impl FnOnce(&T) -> bool, how: impl FnOnce(&mut T)) -> bool {
        self.state.send_if_modified(|state| match state {
            OnDemandState::Present(it) if which(it) => {
                how(it);
                true
            }
            _ => false,
        })
    }

    /// Discards the value if it is `which`.
    pub(super) fn discard(&self, which: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut thrown = None;
        self.state.send_if_modified(|state| match state {
            OnDemandState::Present(it) if which(it) => {
                thrown = Some(it.clone());
                *state = OnDemandState::Absent;
                true
            }
            _ => false,
        });
        thrown
    }

    /// Returns the value; if it does not exist, a task that `spawn` starts makes it.
    pub(super) async fn get<M>(
        self: &Arc<Self>,
        spawn: impl Fn(Task),
        deadline: Instant,
        make: impl Fn() -> M,
    ) -> Result<T, RedisFailure>
    where
        M: Future<Output = Result<T, RedisFailure>> + Send + 'static,
    {
        let mut state = self.state.subscribe();
        loop {
            if let Some(not_before) = self.begin() {
                let making = Making(Some(Arc::clone(self)));
                let make = make();
                spawn(Box::pin(async move {
                    if let Some(until) = not_before {
                        sleep_until(until).await;
                    }
                    making.end(make.await);
                }));
            }
            let settled = state.wait_for(|state| !matches!(state, OnDemandState::Making));
            match before(deadline, settled).await {
                None | Some(Err(_)) => return Err(self.late.clone()),
                Some(Ok(state)) => match &*state {
                    OnDemandState::Present(it) => return Ok(it.clone()),
                    OnDemandState::Failed(failure, _) => return Err(failure.clone()),
                    OnDemandState::Dropped => return Err(self.late.clone()),
                    // It was made and discarded before this caller saw it.
                    OnDemandState::Absent | OnDemandState::Making => {}
                },
            }
            if Instant::now() >= deadline {
                return Err(self.late.clone());
            }
        }
    }

    /// Starts an attempt, unless one is running or the value exists. Returns the time before which it
    /// must not begin.
    fn begin(&self) -> Option<Option<Instant>> {
        let mut not_before = None;
        let begun = self.state.send_if_modified(|state| {
            match state {
                OnDemandState::Absent | OnDemandState::Dropped => {}
                OnDemandState::Failed(_, until) => not_before = Some(*until),
                OnDemandState::Making | OnDemandState::Present(_) => return false,
            }
            *state = OnDemandState::Making;
            true
        });
        begun.then_some(not_before)
    }
}

/// An attempt. Reports its end even if its runtime drops it.
struct Making<T: Clone + Send + Sync + 'static>(Option<Arc<OnDemand<T>>>);

impl<T: Clone + Send + Sync + 'static> Making<T> {
    fn end(mut self, made: Result<T, RedisFailure>) {
        let Some(place) = self.0.take() else {
            return;
        };
        place.state.send_replace(match made {
            Ok(it) => OnDemandState::Present(it),
            Err(failure) => OnDemandState::Failed(failure, Instant::now() + place.shared.pause()),
        });
    }
}

impl<T: Clone + Send + Sync + 'static> Drop for Making<T> {
    fn drop(&mut self) {
        if let Some(place) = self.0.take() {
            place.state.send_replace(OnDemandState::Dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use polylock_core::engine::Engine;

    use super::super::connection_events::NoEvents;
    use super::*;
    use crate::config::RedisConfig;
    use crate::error::RedisCause;

    fn place() -> Arc<OnDemand<usize>> {
        let engine = Engine::of_this_process("redis");
        let config = RedisConfig::new("127.0.0.1", 1);
        let shared = ConnectionContext::new(&config, Arc::new(NoEvents), &engine);
        OnDemand::new(&Arc::new(shared), RedisCause::LateRenewal.unknown())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test]
    async fn what_is_thrown_away_before_a_caller_looks_is_made_again() {
        let (place, made) = (place(), AtomicUsize::new(0));
        // On this runtime of one thread, the caller looks when both are done.
        let spawn = |task: Task| {
            let place = Arc::clone(&place);
            drop(tokio::spawn(async move {
                task.await;
                place.discard(|it| *it == 1);
            }));
        };
        let make = || {
            let number = made.fetch_add(1, Ordering::Relaxed) + 1;
            async move { Ok(number) }
        };
        let found = place.get(spawn, soon(), make).await;
        assert!(matches!(found, Ok(2)));
    }

    #[tokio::test]
    async fn a_task_that_never_runs_is_not_waited_for() {
        let place = place();
        let make = || async { Ok(1) };
        for _ in 0..2 {
            let found = place.get(drop, soon(), make).await;
            assert!(found.is_err());
        }
        let spawn = |task| drop(tokio::spawn(task));
        let found = place.get(spawn, soon(), make).await;
        assert!(matches!(found, Ok(1)));
    }
}
