//! Tries locks on a service, on private keys.

mod exclusion;
mod expiry;
mod loss;

use std::time::Duration;

use polylock::engine::{LeaseId, OsEntropy};
use polylock::{DistributedLock, Error, HealthCheck, LockLifetime};

use super::target::fault;

/// Two connections to one service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    pub(super) first: &'a dyn DistributedLock,
    pub(super) second: &'a dyn DistributedLock,
}

/// Keys for one visit: of the doctor, and as unguessable as a lease.
#[derive(Debug)]
pub(super) struct Scratch(String);

impl Scratch {
    pub(super) fn new() -> Self {
        let id = LeaseId::random(&OsEntropy::default()).to_hex();
        Self(format!("polylock-doctor/{id}"))
    }

    pub(super) fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }
}

/// Tries exclusion, tokens, the signal of loss and expiry, beside each other.
pub(super) async fn try_all(pair: Pair<'_>, scratch: &Scratch) -> Vec<HealthCheck> {
    let (exclusion, loss, expiry) = tokio::join!(
        Box::pin(exclusion::try_it(pair, scratch.key("exclusion"), CONTEST)),
        Box::pin(loss::try_it(pair, scratch.key("loss-signal"))),
        Box::pin(async {
            match pair.first.capabilities().bound {
                LockLifetime::Lease => Some(expiry::try_it(pair, scratch.key("expiry")).await),
                _ => None,
            }
        }),
    );
    let mut found = exclusion.unwrap_or_else(|error| vec![fault(&error, "exclusion")]);
    found.push(loss.unwrap_or_else(|error| fault(&error, "loss-signal")));
    found.extend(expiry.map(|found| found.unwrap_or_else(|error| fault(&error, "expiry"))));
    found
}

type Outcome<T> = Result<T, Error>;

/// How long two connections contend for a lock.
const CONTEST: Duration = Duration::from_secs(1);
/// How long a lock is waited for that must come free.
const PATIENCE: Duration = Duration::from_secs(10);
