//! Fencing tokens that one grant reserves for the holders of one process.

use std::sync::Mutex;

use polylock_core::{FencingToken, Mode};

use crate::locked;
use crate::script::BLOCK;

/// The token of the holder, and those for the next holders.
#[derive(Debug, Default)]
pub(crate) struct RedisTokens(Mutex<Reserved>);

#[derive(Clone, Copy, Debug, Default)]
struct Reserved {
    current: u64,
    last: u64,
}

impl RedisTokens {
    /// Stores so many tokens, and returns the first one.
    pub(crate) fn keep(&self, first: u64, count: u64) -> FencingToken {
        *locked(&self.0) = Reserved {
            current: first,
            last: first + count.saturating_sub(1),
        };
        FencingToken::new(first)
    }

    /// The token of the next holder, if there is one left.
    pub(crate) fn next(&self) -> Option<FencingToken> {
        let mut reserved = locked(&self.0);
        if reserved.current >= reserved.last {
            return None;
        }
        reserved.current += 1;
        Some(FencingToken::new(reserved.current))
    }

    pub(crate) fn current(&self) -> u64 {
        locked(&self.0).current
    }

    pub(crate) fn last(&self) -> u64 {
        locked(&self.0).last
    }
}

/// How many tokens the nodes of a quorum reserve: shared holders never hand over.
pub(crate) fn count_of(mode: Mode) -> u64 {
    match mode {
        Mode::Exclusive => BLOCK,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_lasts_for_its_holders_and_a_reader_has_one() {
        let tokens = RedisTokens::default();
        assert_eq!(tokens.next(), None);
        tokens.keep(100, count_of(Mode::Exclusive));
        assert_eq!((tokens.current(), tokens.last()), (100, 131));
        assert_eq!(tokens.next(), Some(FencingToken::new(101)));
        assert_eq!(std::iter::from_fn(|| tokens.next()).count(), 30);
        tokens.keep(200, count_of(Mode::Shared));
        assert_eq!((tokens.current(), tokens.next()), (200, None));
    }
}
