use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::time::Duration;

use crate::engine::Mutex;
use crate::error::{Error, ErrorKind, Result};

/// What can go wrong between a client and a [`Memory`](super::Memory) store, injected by tests.
///
/// Faults are taken in the order in which they were planned, each by the next request of its kind.
///
/// # Examples
///
/// A test of code whose server grants the lock, while the reply is lost:
///
/// ```
/// use polylock_core::memory::{Fault, Memory, Request};
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = Memory::new();
/// locks.faults().plan(Request::Acquire, Fault::LostReply);
///
/// let error = locks.lock("orders/42").await.expect_err("the reply is lost");
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// assert!(error.is_outcome_unknown());
/// // The grant is released in the background, and the lock is free again.
/// locks.lock("orders/42").await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct MemoryFaults {
    plan: Mutex<FaultState>,
}

#[derive(Debug, Default)]
struct FaultState {
    next: VecDeque<(Request, Fault)>,
    unreachable: bool,
    requests: u64,
}

/// A kind of request.
///
/// The example of [`MemoryFaults`] plans one.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Request {
    /// Acquires a lock or queues for it.
    Acquire,
    /// Gives a held lease another id.
    Adopt,
    /// Writes the record of a key.
    Record,
    /// Releases a lock or leaves its queue.
    Release,
    /// Extends a lease.
    Renew,
}

/// What happens to one request.
///
/// The example of [`MemoryFaults`] plans one.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// It arrives twice; the second answer is returned.
    Duplicated,
    /// It is done, and the answer takes this long.
    LateReply(Duration),
    /// It is done, and the answer is lost.
    LostReply,
    /// It never arrives, and the client gets an error.
    LostRequest,
    /// It never arrives, and the client gets no answer at all.
    Silence,
}

impl MemoryFaults {
    /// Plans a fault for the next request of this kind that has none planned.
    pub fn plan(&self, request: Request, fault: Fault) {
        self.plan.lock().next.push_back((request, fault));
    }

    /// How many planned faults have met no request yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.plan.lock().next.len()
    }

    /// Cuts off or reconnects the store: while it is unreachable, every request fails and none
    /// arrives.
    pub fn set_reachable(&self, reachable: Reachable) {
        self.plan.lock().unreachable = reachable == Reachable::Cut;
    }

    /// Drops the planned faults.
    pub fn clear(&self) {
        let mut plan = self.plan.lock();
        plan.next.clear();
        plan.unreachable = false;
    }

    /// How many requests the clients have sent, of every kind, including those that did not arrive;
    /// for tests of cost. Notifications from the store do not count.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.plan.lock().requests
    }

    /// Does `act` as a request over a network with these faults would.
    pub(super) async fn send<T>(&self, request: Request, mut act: impl FnMut() -> T) -> Result<T> {
        match self.take(request)? {
            None => Ok(act()),
            Some(Fault::Duplicated) => {
                act();
                Ok(act())
            }
            Some(Fault::LateReply(delay)) => {
                let answer = act();
                tokio::time::sleep(delay).await;
                Ok(answer)
            }
            Some(Fault::LostReply) => {
                act();
                Err(broken("the reply was lost").with_unknown_outcome())
            }
            Some(Fault::LostRequest) => Err(broken("the connection broke").with_unknown_outcome()),
            Some(Fault::Silence) => std::future::pending().await,
        }
    }

    /// Whether a question of an operator arrives, for which no faults are planned.
    pub(super) fn arrives(&self) -> Result<()> {
        self.arrived().map(drop)
    }

    fn arrived(&self) -> Result<MutexGuard<'_, FaultState>> {
        let mut plan = self.plan.lock();
        plan.requests += 1;
        match plan.unreachable {
            true => Err(broken("the store is unreachable")),
            false => Ok(plan),
        }
    }

    fn take(&self, request: Request) -> Result<Option<Fault>> {
        let next = &mut self.arrived()?.next;
        let at = next.iter().position(|(planned, _)| *planned == request);
        Ok(at.and_then(|at| next.remove(at)).map(|(_, fault)| fault))
    }
}

/// Whether requests arrive at the store.
///
/// # Examples
///
/// ```
/// use polylock_core::memory::{Memory, Reachable};
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = Memory::new();
/// locks.faults().set_reachable(Reachable::Cut);
/// let error = locks.lock("orders/42").await.expect_err("the store is unreachable");
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
///
/// locks.faults().set_reachable(Reachable::Connected);
/// assert!(locks.lock("orders/42").await?.is_held());
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reachable {
    /// None arrives.
    Cut,
    /// All arrive.
    Connected,
}

fn broken(message: &str) -> Error {
    Error::new(ErrorKind::Unavailable, message)
}
