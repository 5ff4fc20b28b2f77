use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use lock_core::memory::{Fault, Reachable, Request};
use lock_core::{AcquireRequest, Error, ErrorKind, Result, Wait};
use tokio::time::Instant;

use crate::lock;

/// The way between clients and a server: each request travels there, and each reply back.
#[derive(Debug, Default)]
pub(super) struct Wire {
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    next: VecDeque<(Request, Fault)>,
    cut: bool,
}

impl Wire {
    pub(super) fn plan(&self, request: Request, fault: Fault) {
        lock(&self.plan).next.push_back((request, fault));
    }

    pub(super) fn set_reachable(&self, reachable: Reachable) {
        lock(&self.plan).cut = reachable == Reachable::Cut;
    }

    pub(super) fn is_cut(&self) -> bool {
        lock(&self.plan).cut
    }

    /// Does `act` on the server, with the next fault that is planned for such requests.
    ///
    /// Dropped on the way there, nothing happens; dropped on the way back, the server has acted.
    pub(super) async fn call<T>(&self, request: Request, mut act: impl FnMut() -> T) -> Result<T> {
        let fault = {
            let mut plan = lock(&self.plan);
            let at = plan
                .next
                .iter()
                .position(|(planned, _)| *planned == request);
            at.and_then(|at| plan.next.remove(at))
                .map(|(_, fault)| fault)
        };
        match fault {
            Some(Fault::LostRequest) => Err(broken("the connection broke").with_unknown_outcome()),
            Some(Fault::Silence) => std::future::pending().await,
            Some(Fault::LostReply) => {
                self.send(act).await?;
                Err(broken("the reply was lost").with_unknown_outcome())
            }
            Some(Fault::LateReply(delay)) => {
                let reply = self.send(act).await;
                tokio::time::sleep(delay).await;
                reply
            }
            Some(Fault::Duplicated) => {
                self.send(&mut act).await?;
                self.send(act).await
            }
            _ => self.send(act).await,
        }
    }

    /// The same without faults, unless the server is cut off.
    pub(super) async fn send<T>(&self, act: impl FnOnce() -> T) -> Result<T> {
        tokio::task::yield_now().await;
        if self.is_cut() {
            return Err(broken("the server is unreachable"));
        }
        let reply = act();
        tokio::task::yield_now().await;
        Ok(reply)
    }
}

pub(super) fn broken(message: &str) -> Error {
    Error::new(ErrorKind::Unavailable, message)
}

/// Until when a request may wait; `None` without a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(Option<Instant>);

impl Budget {
    /// Longest time that a request without a wait gives the server to answer.
    const ONE_ANSWER: Duration = Duration::from_secs(5);

    pub(super) fn of(request: &AcquireRequest) -> Self {
        let limit = match request.wait() {
            Wait::AtMost(limit) if !limit.is_zero() => Some(limit),
            Wait::Forever => None,
            _ => Some(Self::ONE_ANSWER),
        };
        Self(limit.and_then(|limit| Instant::now().checked_add(limit)))
    }

    /// Whether the request may wait at all.
    pub(super) fn waits(request: &AcquireRequest) -> bool {
        match request.wait() {
            Wait::AtMost(limit) => !limit.is_zero(),
            wait => wait != Wait::Never,
        }
    }

    pub(super) fn is_over(self) -> bool {
        self.0.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// What is left, and no more than `most`.
    pub(super) fn left(self, most: Duration) -> Duration {
        let left = self
            .0
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.map_or(most, |left| left.min(most))
    }

    /// Bounds a call to the server, which is unavailable if it does not answer in time.
    pub(super) async fn bound<T>(self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let silent = || Err(broken("the server does not answer").with_unknown_outcome());
        let Some(deadline) = self.0 else {
            return call.await;
        };
        tokio::time::timeout_at(deadline, call)
            .await
            .unwrap_or_else(|_| silent())
    }
}

/// The answer to a request whose wait is over.
pub(super) fn contended(request: &AcquireRequest) -> Error {
    Error::new(ErrorKind::Contended, "the lock is held").with_key(request.key())
}
