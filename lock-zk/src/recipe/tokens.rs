//! Fencing tokens: transactions of the ensemble, with room for hand-overs between two of them.

use polylock_core::FencingToken;
use polylock_core::engine::TokenBlock;

/// Begins with the tokens of a transaction; `None` if they exceed 63 bits, which takes 2^23 leader elections.
///
/// A transaction `zxid` makes the tokens from `zxid * 256` on. The first is for the holder that the
/// transaction proves, the others for hand-overs in this process; a holder that gets the lock from
/// the ensemble has a later transaction, and so a larger token. One token per transaction would
/// cost a write per hand-over, and be no faster than to release and acquire.
pub(crate) fn begin(tokens: &TokenBlock, zxid: i64) -> Option<FencingToken> {
    let first = token(zxid)?.value();
    Some(tokens.begin(first, first + TOKENS - 1))
}

/// Tokens of one transaction.
const TOKENS: u64 = 256;

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
        let tokens = TokenBlock::default();
        let mut last = begin(&tokens, 0x1_0000_0003).unwrap();
        for _ in 1..TOKENS {
            let next = tokens.next().unwrap();
            assert!(next > last);
            last = next;
        }
        assert_eq!(tokens.next(), None, "the next block takes a transaction");
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
