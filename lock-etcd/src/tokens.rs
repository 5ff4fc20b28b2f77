//! The fencing tokens of holders. Pure.

use polylock_core::FencingToken;

/// The token of a holder. Holders that exclude each other get the lock in the order of their creation, so a
/// later one has a larger revision, and a token above all tokens of an earlier one. The low bits count
/// adoptions, and hand-overs since. `None` after 2^47 writes.
pub(crate) fn token(create_revision: i64, adoptions: u8, hand_overs: u8) -> Option<FencingToken> {
    let revision = u64::try_from(create_revision).ok()?;
    let token =
        revision.checked_mul(1 << 16)? + (u64::from(adoptions) << 8) + u64::from(hand_overs);
    // It fits a signed column of a database.
    i64::try_from(token).ok().map(|_| FencingToken::new(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_contender_has_larger_tokens_than_all_before_it() {
        let last_of_first = token(7, u8::MAX, u8::MAX).unwrap();
        assert!(last_of_first < token(8, 0, 0).unwrap());
        assert!(token(7, 0, u8::MAX).unwrap() < token(7, 1, 0).unwrap());
        assert!(token((1 << 47) - 1, u8::MAX, u8::MAX).is_some());
        assert_eq!(token(1 << 47, 0, 0), None);
        assert_eq!(token(-1, 0, 0), None);
    }
}
