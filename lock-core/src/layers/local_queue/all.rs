//! Several keys by one request.

use tokio::time::Instant;

use super::{LocalQueue, unanswered, within};
use crate::error::{ErrorKind, Result};
use crate::guard::LockGuard;
use crate::lock::DistributedLock;
use crate::request::{AcquireRequest, Mode, Wait};

impl LocalQueue {
    /// Asks the server once for all keys together, which it may take in one step; `None` if that is
    /// not possible, because somebody of this process has or wants one of them or because one is
    /// held.
    ///
    /// It does not wait: whoever waits for one key and stands before others of the process for the
    /// rest could wait in a circle with them.
    pub(super) async fn all_at_once(
        &self,
        requests: &[AcquireRequest],
        deadline: Option<Instant>,
    ) -> Result<Option<Vec<LockGuard>>> {
        let exclusive = |request: &AcquireRequest| request.mode() == Mode::Exclusive;
        if self.inner.capabilities().reentry || !requests.iter().all(exclusive) {
            return Ok(None);
        }
        let mut contenders = Vec::with_capacity(requests.len());
        let mut asked = Vec::with_capacity(requests.len());
        for request in requests {
            self.capabilities().check(request)?;
            let Some(contender) = self.seat(request).take_idle(request) else {
                return Ok(None);
            };
            asked.push(request.clone().in_contest(Wait::Never, contender.contest()));
            contenders.push(contender);
        }
        let Some(answer) = within(deadline, self.inner.acquire_all(&asked)).await else {
            return Err(unanswered(&requests[0]).with_unknown_outcome());
        };
        let guards = match answer {
            Ok(guards) => guards,
            Err(error) if error.kind() == ErrorKind::Contended => return Ok(None),
            Err(error) => return Err(error),
        };
        let seated = guards.into_iter().zip(&mut contenders).zip(requests);
        let guards: Vec<_> = seated
            .filter_map(|((guard, contender), request)| contender.seated(guard, request))
            .collect();
        guards.iter().try_for_each(LockGuard::ensure_held)?;
        Ok(Some(guards))
    }
}
