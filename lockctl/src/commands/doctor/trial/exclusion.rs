//! Two connections contend for a lock: never both have it, and tokens grow.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lock_history::{Exclusion, Hold, TokenOrder};
use polylock::prelude::*;
use polylock::{Fencing, HealthCheck, LockGuard, Wait};

use super::{Outcome, PATIENCE, Pair};
use crate::text::human;

/// Lets them contend for this long, and judges what they saw.
pub(super) async fn try_it(
    pair: Pair<'_>,
    key: String,
    time: Duration,
) -> Outcome<Vec<HealthCheck>> {
    let record = Record::default();
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

async fn take(locks: &dyn DistributedLock, key: &str) -> Outcome<LockGuard> {
    locks
        .request(key)
        .wait(Wait::AtMost(PATIENCE))
        .acquire()
        .await
}

/// Takes the lock and gives it back again and again; once at least, however slow the service is.
async fn contend(
    locks: &dyn DistributedLock,
    key: &str,
    until: Instant,
    record: &Record,
) -> Outcome<()> {
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
struct Record(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
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

impl Record {
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

impl Seen {
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
        // An overlap for which no loss can answer is none that a slow machine explains.
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
            "the lock excludes nobody: the connections end at servers that do not know each \
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

#[cfg(test)]
mod tests {
    use polylock::Status;
    use polylock::memory::Memory;

    use super::*;

    async fn tried(first: &Memory, second: &Memory) -> Vec<HealthCheck> {
        let pair = Pair { first, second };
        let time = Duration::from_millis(50);
        try_it(pair, "k".to_owned(), time).await.unwrap()
    }

    fn tokens(tokens: &[u64]) -> Seen {
        let mut seen = Seen::default();
        for token in tokens {
            seen.enter(Some(*token));
        }
        seen
    }

    #[tokio::test]
    async fn connections_to_one_store_exclude_each_other() {
        let locks = Memory::new();
        let found = tried(&locks, &locks).await;
        let [exclusion, order] = found.try_into().unwrap();
        assert_eq!((exclusion.id, exclusion.status), ("exclusion", Status::Ok));
        assert_eq!((order.id, order.status), ("token-order", Status::Ok));
    }

    #[tokio::test]
    async fn connections_to_two_stores_do_not() {
        let found = tried(&Memory::new(), &Memory::new()).await;
        let [exclusion, _] = found.try_into().unwrap();
        assert_eq!(
            (exclusion.id, exclusion.status),
            ("exclusion", Status::Error)
        );
        assert!(exclusion.summary.contains("were not alone"), "{exclusion}");
    }

    #[test]
    fn tokens_that_do_not_grow_are_an_error() {
        for (given, status) in [
            (&[1, 2, 9][..], Status::Ok),
            (&[1, 2, 2], Status::Error),
            (&[5, 4, 6], Status::Error),
        ] {
            let found = tokens(given).token_order(Fencing::Strong);
            assert_eq!(found.status, status, "{given:?}");
        }
    }

    #[test]
    fn no_tokens_are_no_fault() {
        let found = tokens(&[]).token_order(Fencing::Unavailable);
        assert!(!found.is_fault());
    }

    #[test]
    fn an_overlap_with_a_lost_lock_is_less_than_an_error() {
        let mut seen = tokens(&[1, 2]);
        seen.lost = 1;
        assert_eq!(seen.exclusion(PATIENCE).status, Status::Warning);
        seen.enter(Some(3));
        assert_eq!(seen.exclusion(PATIENCE).status, Status::Error);
    }

    #[test]
    fn a_holder_without_a_token_is_an_error_where_there_are_tokens() {
        let mut seen = tokens(&[1]);
        seen.enter(None);
        assert_eq!(seen.token_order(Fencing::Strong).status, Status::Error);
        assert!(!seen.token_order(Fencing::Unavailable).is_fault());
    }
}
