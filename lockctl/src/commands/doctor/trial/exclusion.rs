//! Two connections contend for a lock: never both have it, and tokens grow.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use polylock::prelude::*;
use polylock::{Fencing, FencingToken, Finding, LockGuard, Wait};

use super::{Outcome, PATIENCE, Pair};
use crate::text::human;

/// Lets them contend for this long, and judges what they saw.
pub(super) async fn try_it(pair: Pair<'_>, key: String, time: Duration) -> Outcome<Vec<Finding>> {
    let record = Record::default();
    let guard = take(pair.first, &key).await?;
    record.enter(&guard);
    let meanwhile = pair.second.try_lock(&*key).await?;
    if let Some(second) = &meanwhile {
        record.enter(second);
        record.leave(second);
    }
    record.leave(&guard);
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
        record.enter(&guard);
        // Time for the other one to come in, if it can.
        tokio::time::sleep(HOLD).await;
        record.leave(&guard);
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
    inside: u32,
    overlaps: u32,
    lost: u32,
    tokens: Vec<Option<FencingToken>>,
}

impl Record {
    fn enter(&self, guard: &LockGuard) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.overlaps += u32::from(seen.inside > 0);
        seen.inside += 1;
        seen.tokens.push(guard.fencing_token());
    }

    fn leave(&self, guard: &LockGuard) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.inside -= 1;
        seen.lost += u32::from(!guard.is_held());
    }
}

impl Seen {
    fn exclusion(&self, time: Duration) -> Finding {
        let holders = self.tokens.len();
        if self.overlaps == 0 {
            let what = format!(
                "two connections contended for {} and never had the lock both: {holders} holders, \
                 one after the other",
                human(time)
            );
            return Finding::good("exclusion", what);
        }
        let what = format!("{} of {holders} holders were not alone", self.overlaps);
        // An overlap for which no loss can answer is none that a slow machine explains.
        if self.lost >= self.overlaps {
            let (lost, why) = (
                self.lost,
                "who has lost a lock and not looked is not alone for long",
            );
            return Finding::warning(
                "exclusion",
                format!("{what}, and {lost} had lost the lock by then"),
                why,
                "look again while this machine and the server have time to spare",
            );
        }
        Finding::error(
            "exclusion",
            what,
            "the lock excludes nobody: the connections end at servers that do not know each \
             other, or the server has lost what it acknowledged",
            "name one server, or one primary, and not several behind one address",
        )
    }

    fn token_order(&self, fencing: Fencing) -> Finding {
        if fencing == Fencing::Unavailable {
            return Finding::unknown(
                "token-order",
                "there are no fencing tokens here: a resource cannot refuse a holder that comes \
                 late",
            );
        }
        let tokens: Vec<_> = self.tokens.iter().flatten().copied().collect();
        let without = self.tokens.len() - tokens.len();
        if without > 0 {
            return Finding::error(
                "token-order",
                format!(
                    "{without} of {} holders got no fencing token",
                    self.tokens.len()
                ),
                "a resource cannot refuse a holder that comes late",
                "report it: this backend is said to have tokens",
            );
        }
        let backward = tokens.windows(2).filter(|pair| pair[0] >= pair[1]).count();
        if backward > 0 {
            return Finding::error(
                "token-order",
                format!("{backward} of {} fencing tokens did not grow", tokens.len()),
                "a resource that refuses smaller tokens refuses the holder and takes the writes \
                 of who was before it",
                "look for a server that has lost data, or for two servers behind one address",
            );
        }
        let promise = match fencing {
            Fencing::Strong => "",
            _ => ", which holds for as long as the server keeps what it acknowledges",
        };
        let what = format!(
            "the tokens of {} holders grew each time{promise}",
            tokens.len()
        );
        Finding::good("token-order", what)
    }
}

#[cfg(test)]
mod tests {
    use polylock::Verdict;
    use polylock::memory::Memory;

    use super::*;

    async fn tried(first: &Memory, second: &Memory) -> Vec<Finding> {
        let pair = Pair { first, second };
        let time = Duration::from_millis(50);
        try_it(pair, "k".to_owned(), time).await.unwrap()
    }

    fn tokens(tokens: &[u64]) -> Seen {
        Seen {
            tokens: tokens.iter().map(|n| Some(FencingToken::new(*n))).collect(),
            ..Seen::default()
        }
    }

    #[tokio::test]
    async fn connections_to_one_store_exclude_each_other() {
        let locks = Memory::new();
        let found = tried(&locks, &locks).await;
        let [exclusion, order] = found.try_into().unwrap();
        assert_eq!(
            (exclusion.check, exclusion.verdict),
            ("exclusion", Verdict::Good)
        );
        assert_eq!((order.check, order.verdict), ("token-order", Verdict::Good));
    }

    #[tokio::test]
    async fn connections_to_two_stores_do_not() {
        let found = tried(&Memory::new(), &Memory::new()).await;
        let [exclusion, _] = found.try_into().unwrap();
        assert_eq!(
            (exclusion.check, exclusion.verdict),
            ("exclusion", Verdict::Error)
        );
        assert!(exclusion.what.contains("were not alone"), "{exclusion}");
    }

    #[test]
    fn tokens_that_do_not_grow_are_an_error() {
        for (given, verdict) in [
            (&[1, 2, 9][..], Verdict::Good),
            (&[1, 2, 2], Verdict::Error),
            (&[5, 4, 6], Verdict::Error),
        ] {
            let found = tokens(given).token_order(Fencing::Strong);
            assert_eq!(found.verdict, verdict, "{given:?}");
        }
    }

    #[test]
    fn no_tokens_are_no_fault() {
        let found = tokens(&[]).token_order(Fencing::Unavailable);
        assert!(!found.is_fault());
    }

    #[test]
    fn an_overlap_with_a_lost_lock_is_less_than_an_error() {
        let seen = Seen {
            overlaps: 1,
            lost: 1,
            ..Seen::default()
        };
        assert_eq!(seen.exclusion(PATIENCE).verdict, Verdict::Warning);
        let seen = Seen {
            overlaps: 2,
            ..seen
        };
        assert_eq!(seen.exclusion(PATIENCE).verdict, Verdict::Error);
    }

    #[test]
    fn a_holder_without_a_token_is_an_error_where_there_are_tokens() {
        let seen = Seen {
            tokens: vec![Some(FencingToken::new(1)), None],
            ..Seen::default()
        };
        assert_eq!(seen.token_order(Fencing::Strong).verdict, Verdict::Error);
        assert!(!seen.token_order(Fencing::Unavailable).is_fault());
    }
}
