//! Fencing tokens: transactions of the ensemble, with room for hand-overs between two of them.

use std::sync::atomic::{AtomicU64, Ordering};

use polylock_core::FencingToken;

/// The tokens of a contender, by the one that was drawn last; 0 if there is none.
///
/// A transaction `zxid` makes the tokens from `zxid * 256` on. The first is for the holder that the
/// transaction proves, the others for hand-overs in this process; a holder that gets the lock from
/// the ensemble has a later transaction, and so a larger token. One token per transaction would
/// cost a write per hand-over, and be no faster than to release and acquire.
#[derive(Debug, Default)]
pub(crate) struct ZkTokens(AtomicU64);

/// Tokens of one transaction.
const TOKENS: u64 = 256;

impl ZkTokens {
    /// Begins with the tokens of a transaction; `None` if they exceed 63 bits, which takes 2^23 leader
    /// elections.
    pub(crate) fn begin(&self, zxid: i64) -> Option<FencingToken> {
        let first = token(zxid)?;
        self.0.store(first.into(), Ordering::Release);
        Some(first)
    }

    /// Draws the next one; `None` if another transaction is needed.
    pub(crate) fn next(&self) -> Option<FencingToken> {
        let next = |last| (last > 0 && (last + 1) % TOKENS > 0).then_some(last + 1);
        let last = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        last.ok().map(|last| FencingToken::new(last + 1))
    }

    /// The one that was drawn last.
    pub(crate) fn last(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The first token of a transaction. It fits a signed column of a database.
pub(crate) fn token(zxid: i64) -> Option<FencingToken> {
    let first = u64::try_from(zxid).ok()?.checked_mul(TOKENS)?;
    i64::try_from(first).ok().map(|_| FencingToken::new(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_transaction_has_larger_tokens_than_all_hand_overs_before_it() {
        let tokens = ZkTokens::default();
        assert_eq!(tokens.next(), None);
        let mut last = tokens.begin(0x1_0000_0003).unwrap();
        for _ in 1..TOKENS {
            let next = tokens.next().unwrap();
            assert!(next > last);
            last = next;
        }
        assert_eq!(tokens.next(), None, "the next block takes a transaction");
        assert_eq!(tokens.last(), u64::from(last));
        assert!(token(0x1_0000_0004).unwrap() > last);
    }

    #[test]
    fn a_transaction_beyond_all_elections_has_none() {
        let last_epoch = (1_i64 << 23) - 1;
        assert!(token(last_epoch << 32).is_some());
        assert_eq!(token((last_epoch + 1) << 32), None);
        assert_eq!(token(-1), None);
    }
}
