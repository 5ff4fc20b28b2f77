//! Tries locks on a service, on private keys: two connections exclude each other, tokens grow, and a lease
//! without renewals ends in time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use polylock::engine::{LeaseId, OsEntropy};
use polylock::prelude::*;
use polylock::{AcquireRequest, Error, Fencing, HealthCheck, LockGuard, LockLifetime, Wait};
use polylock_history::{Exclusion, Hold, TokenOrder};

use super::round_trip::exact;
use super::target::fault;
use crate::output::human;

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

/// Tries exclusion, tokens and expiry, beside each other.
pub(super) async fn try_all(pair: Pair<'_>, scratch: &Scratch) -> Vec<HealthCheck> {
    let (exclusion, expiry) = tokio::join!(
        Box::pin(try_exclusion(pair, scratch.key("exclusion"), CONTEST_TIME)),
        Box::pin(async {
            match pair.first.capabilities().bound {
                LockLifetime::Lease => Some(try_expiry(pair, scratch.key("expiry")).await),
                _ => None,
            }
        }),
    );
    let mut found = exclusion.unwrap_or_else(|error| vec![fault(&error, "exclusion")]);
    found.extend(expiry.map(|found| found.unwrap_or_else(|error| fault(&error, "expiry"))));
    found
}

type TrialResult<T> = Result<T, Error>;

/// How long two connections contend for a lock.
const CONTEST_TIME: Duration = Duration::from_secs(1);

/// How long a lock is waited for that must come free.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Lets them contend for this long, and judges what they saw.
async fn try_exclusion(
    pair: Pair<'_>,
    key: String,
    time: Duration,
) -> TrialResult<Vec<HealthCheck>> {
    let record = TrialRecord::default();
    let guard = take(pair.first, &key).await?;
    let first = record.enter(&guard);
    let meanwhile = pair.second.try_lock(&*key).await?;
    if let Some(second) = &meanwhile {
        let number = record.enter(second);
        record.leave(number, second);
    }
    record.leave(first, &guard);
    guard.release().await?;
    if let Some(second) = meanwhile {
        second.release().await?;
    }
    let until = Instant::now() + time;
    tokio::try_join!(
        contend(pair.first, &key, until, &record),
        contend(pair.second, &key, until, &record),
    )?;
    let fencing = pair.first.capabilities().fencing;
    let seen = record
        .0
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    Ok(vec![seen.exclusion(time), seen.token_order(fencing)])
}

async fn take(locks: &dyn DistributedLock, key: &str) -> TrialResult<LockGuard> {
    locks
        .request(key)
        .wait(Wait::AtMost(WAIT_TIMEOUT))
        .acquire()
        .await
}

/// Takes the lock and gives it back again and again; once at least, however slow the service is.
async fn contend(
    locks: &dyn DistributedLock,
    key: &str,
    until: Instant,
    record: &TrialRecord,
) -> TrialResult<()> {
    loop {
        let guard = take(locks, key).await?;
        let number = record.enter(&guard);
        // Time for the other one to come in, if it can.
        tokio::time::sleep(HOLD).await;
        record.leave(number, &guard);
        guard.release().await?;
        if Instant::now() >= until {
            return Ok(());
        }
    }
}

const HOLD: Duration = Duration::from_millis(1);

/// What both of them note.
#[derive(Debug, Default)]
struct TrialRecord(Mutex<TrialState>);

#[derive(Debug, Default)]
struct TrialState {
    exclusion: Exclusion,
    order: TokenOrder,
    holders: u64,
    overlaps: u32,
    lost: u32,
    /// Holders without a fencing token.
    without: u64,
    /// Tokens that are not larger than all before them.
    backward: u64,
}

impl TrialRecord {
    /// Returns the number of the holder.
    fn enter(&self, guard: &LockGuard) -> u64 {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.enter(guard.fencing_token().map(u64::from))
    }

    fn leave(&self, number: u64, guard: &LockGuard) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.exclusion.leave(number);
        seen.lost += u32::from(!guard.is_held());
    }
}

impl TrialState {
    fn enter(&mut self, token: Option<u64>) -> u64 {
        self.holders += 1;
        let hold = Hold::open(self.holders, self.holders).with_token(token);
        self.overlaps += u32::from(self.exclusion.enter(hold).is_some());
        self.without += u64::from(token.is_none());
        self.backward += u64::from(self.order.grant(hold).is_some());
        self.holders
    }

    fn exclusion(&self, time: Duration) -> HealthCheck {
        let holders = self.holders;
        if self.overlaps == 0 {
            let what = format!(
                "two connections contended for {} and never had the lock both: {holders} holders, \
                 one after the other",
                human(time)
            );
            return HealthCheck::ok("exclusion", what);
        }
        let what = format!("{} of {holders} holders were not alone", self.overlaps);
        // A slow machine does not explain an overlap without a loss.
        if self.lost >= self.overlaps {
            let (lost, impact) = (
                self.lost,
                "who has lost a lock and not looked is not alone for long",
            );
            return HealthCheck::warning(
                "exclusion",
                format!("{what}, and {lost} had lost the lock by then"),
                impact,
                "look again while this machine and the server have time to spare",
            );
        }
        HealthCheck::error(
            "exclusion",
            what,
            "the lock does not exclude: the connections end at servers that do not know each \
             other, or the server has lost what it acknowledged",
            "name one server, or one primary, and not several behind one address",
        )
    }

    fn token_order(&self, fencing: Fencing) -> HealthCheck {
        if fencing == Fencing::Unavailable {
            return HealthCheck::not_checked(
                "token-order",
                "there are no fencing tokens here: a resource cannot refuse a holder that comes \
                 late",
            );
        }
        let (holders, without, backward) = (self.holders, self.without, self.backward);
        if without > 0 {
            return HealthCheck::error(
                "token-order",
                format!("{without} of {holders} holders got no fencing token"),
                "a resource cannot refuse a holder that comes late",
                "report it: this backend is said to have tokens",
            );
        }
        if backward > 0 {
            return HealthCheck::error(
                "token-order",
                format!("{backward} of {holders} fencing tokens did not grow"),
                "a resource that refuses smaller tokens refuses the holder and takes the writes \
                 of who was before it",
                "look for a server that has lost data, or for two servers behind one address",
            );
        }
        let promise = match fencing {
            Fencing::Strong => "",
            _ => ", which holds for as long as the server keeps what it acknowledges",
        };
        let what = format!("the tokens of {holders} holders grew each time{promise}");
        HealthCheck::ok("token-order", what)
    }
}

/// Leaves a lease without renewal: it is free after its time, and not before.
async fn try_expiry(pair: Pair<'_>, key: String) -> TrialResult<HealthCheck> {
    let ttl = Duration::from_secs(1).max(pair.first.capabilities().min_ttl);
    match leave(pair, &key, ttl).await {
        // The reply to the first request, on a new connection, may take longer than such a lease.
        Err(error) if error.is_retryable() => leave(pair, &key, AcquireRequest::SHORT_TTL).await,
        outcome => outcome,
    }
}

async fn leave(pair: Pair<'_>, key: &str, ttl: Duration) -> TrialResult<HealthCheck> {
    let lease = pair.first.request(key).ttl(ttl);
    let lease = lease.wait(Wait::AtMost(WAIT_TIMEOUT)).manual_renewal();
    let guard = lease.acquire().await?;
    let began = Instant::now();
    let valid = guard.valid_until().map(tokio::time::Instant::into_std);
    guard.abandon();
    let next = take(pair.second, key).await?;
    let (granted, took) = (Instant::now(), began.elapsed());
    next.release().await?;
    Ok(expiry(
        ttl,
        took,
        valid.is_some_and(|valid| granted < valid),
    ))
}

fn expiry(ttl: Duration, took: Duration, was_held: bool) -> HealthCheck {
    let what = format!(
        "a lease of {} without renewals was free after {}",
        human(ttl),
        exact(took)
    );
    if was_held {
        return HealthCheck::error(
            "expiry",
            what,
            "another client got the lock while its holder relied on it",
            "look whether the clock of the server was set, or whether it lost data",
        );
    }
    if took > ttl + EXPIRY_SLACK {
        return HealthCheck::warning(
            "expiry",
            what,
            "the locks of a process that died stay taken for longer than their ttl",
            "look whether the server is overloaded, or its clock was set",
        );
    }
    HealthCheck::ok("expiry", what)
}

/// What polling and a busy server may add.
const EXPIRY_SLACK: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use polylock::Status;
    use polylock::memory::Memory;

    use super::*;

    fn tokens(tokens: &[u64]) -> TrialState {
        let mut seen = TrialState::default();
        for token in tokens {
            seen.enter(Some(*token));
        }
        seen
    }

    #[tokio::test]
    async fn connections_exclude_each_other_if_they_lead_to_one_store() {
        let (locks, other) = (Memory::new(), Memory::new());
        for (second, status) in [(&locks, Status::Ok), (&other, Status::Error)] {
            let first = &locks;
            let time = Duration::from_millis(50);
            let found = try_exclusion(Pair { first, second }, "k".to_owned(), time).await;
            let [exclusion, order] = found.unwrap().try_into().unwrap();
            assert_eq!((exclusion.id, exclusion.status), ("exclusion", status));
            assert_eq!(order.id, "token-order");
            if status == Status::Ok {
                assert_eq!(order.status, Status::Ok, "{order}");
            } else {
                assert!(exclusion.summary.contains("were not alone"), "{exclusion}");
            }
        }
    }

    #[test]
    fn tokens_that_do_not_grow_are_an_error_where_there_are_tokens() {
        for (given, fencing, status) in [
            (&[1, 2, 9][..], Fencing::Strong, Status::Ok),
            (&[1, 2, 2], Fencing::Strong, Status::Error),
            (&[5, 4, 6], Fencing::Strong, Status::Error),
            (&[], Fencing::Unavailable, Status::NotChecked),
        ] {
            let found = tokens(given).token_order(fencing);
            assert_eq!(found.status, status, "{given:?}");
        }
        let mut seen = tokens(&[1]);
        seen.enter(None);
        assert_eq!(seen.token_order(Fencing::Strong).status, Status::Error);
        assert!(!seen.token_order(Fencing::Unavailable).is_fault());
    }

    #[test]
    fn an_overlap_with_a_lost_lock_is_less_than_an_error() {
        let mut seen = tokens(&[1, 2]);
        seen.lost = 1;
        assert_eq!(seen.exclusion(CONTEST_TIME).status, Status::Warning);
        seen.enter(Some(3));
        assert_eq!(seen.exclusion(CONTEST_TIME).status, Status::Error);
    }

    #[test]
    fn an_abandoned_lease_is_free_after_its_time() {
        let ttl = Duration::from_secs(1);
        let late = ttl + EXPIRY_SLACK + Duration::from_millis(1);
        for (took, was_held, status) in [
            (ttl, false, Status::Ok),
            (ttl / 2, true, Status::Error),
            (late, false, Status::Warning),
        ] {
            assert_eq!(expiry(ttl, took, was_held).status, status);
        }
    }
}
