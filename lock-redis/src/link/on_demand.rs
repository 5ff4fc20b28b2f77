use std::sync::Arc;

use lock_core::engine::Task;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::nap::before;
use super::shared::Shared;
use crate::error::Failure;

/// Something that is made when it is needed, and again after it turned out to be of no use.
///
/// It is made by a task that no caller can cancel; callers share it and how it ends.
#[derive(Debug)]
pub(super) struct OnDemand<T> {
    state: watch::Sender<State<T>>,
}

#[derive(Clone, Debug)]
enum State<T> {
    Absent,
    /// The next attempt waits for its turn, so that callers do not make one each.
    Failed(Failure, Instant),
    Making,
    Present(T),
}

/// Why there is nothing.
pub(super) enum Missing {
    Failed(Failure),
    /// It is not there yet.
    Late,
    /// The runtime of the task is shut down.
    Runtime,
}

impl<T: Clone + Send + Sync + 'static> OnDemand<T> {
    pub(super) fn new() -> Arc<Self> {
        let state = watch::Sender::new(State::Absent);
        Arc::new(Self { state })
    }

    pub(super) fn present(&self) -> Option<T> {
        match &*self.state.borrow() {
            State::Present(it) => Some(it.clone()),
            State::Absent | State::Failed(..) | State::Making => None,
        }
    }

    /// Whether it is there and fulfils a condition.
    pub(super) fn is(&self, condition: impl FnOnce(&T) -> bool) -> bool {
        matches!(&*self.state.borrow(), State::Present(it) if condition(it))
    }

    /// Changes it; false if it is not there, or not `which`.
    pub(super) fn change(&self, which: impl FnOnce(&T) -> bool, how: impl FnOnce(&mut T)) -> bool {
        self.state.send_if_modified(|state| match state {
            State::Present(it) if which(it) => {
                how(it);
                true
            }
            _ => false,
        })
    }

    /// Throws it away if it is `which`.
    pub(super) fn discard(&self, which: impl FnOnce(&T) -> bool) -> Option<T> {
        let mut thrown = None;
        self.state.send_if_modified(|state| match state {
            State::Present(it) if which(it) => {
                thrown = Some(it.clone());
                *state = State::Absent;
                true
            }
            _ => false,
        });
        thrown
    }

    /// Gives it, and has it made by a task that `spawn` starts if it is not there.
    pub(super) async fn get<M>(
        self: &Arc<Self>,
        spawn: impl FnOnce(Task),
        shared: &Arc<Shared>,
        deadline: Instant,
        make: impl FnOnce() -> M,
    ) -> Result<T, Missing>
    where
        M: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let mut state = self.state.subscribe();
        if let Some(not_before) = self.begin() {
            let making = Making(Some((Arc::clone(self), Arc::clone(shared))));
            let make = make();
            spawn(Box::pin(async move {
                if let Some(until) = not_before {
                    sleep_until(until).await;
                }
                making.end(make.await);
            }));
        }
        let settled = state.wait_for(|state| !matches!(state, State::Making));
        match before(deadline, settled).await {
            None => Err(Missing::Late),
            Some(Err(_)) => Err(Missing::Runtime),
            Some(Ok(state)) => match &*state {
                State::Present(it) => Ok(it.clone()),
                State::Failed(failure, _) => Err(Missing::Failed(failure.clone())),
                State::Absent | State::Making => Err(Missing::Runtime),
            },
        }
    }

    /// Says that it is being made, unless somebody else has or it is there; gives the time before
    /// which it is too early.
    fn begin(&self) -> Option<Option<Instant>> {
        let mut not_before = None;
        let begun = self.state.send_if_modified(|state| {
            match state {
                State::Absent => {}
                State::Failed(_, until) => not_before = Some(*until),
                State::Making | State::Present(_) => return false,
            }
            *state = State::Making;
            true
        });
        begun.then_some(not_before)
    }
}

/// An attempt. Says that it is over even if its runtime drops it.
struct Making<T: Clone + Send + Sync + 'static>(Option<(Arc<OnDemand<T>>, Arc<Shared>)>);

impl<T: Clone + Send + Sync + 'static> Making<T> {
    fn end(mut self, made: Result<T, Failure>) {
        let Some((place, shared)) = self.0.take() else {
            return;
        };
        place.state.send_replace(match made {
            Ok(it) => State::Present(it),
            Err(failure) => State::Failed(failure, Instant::now() + shared.pause()),
        });
    }
}

impl<T: Clone + Send + Sync + 'static> Drop for Making<T> {
    fn drop(&mut self) {
        if let Some((place, _)) = self.0.take() {
            place.state.send_replace(State::Absent);
        }
    }
}
