//! Fencing tokens that one grant sets aside for the holders of one process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::{FencingToken, Mode};

use crate::script::BLOCK;

/// The token that the holder has, and those for the next ones.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<Reserved>);

#[derive(Clone, Copy, Debug, Default)]
struct Reserved {
    current: u64,
    last: u64,
}

impl Tokens {
    /// Keeps what a script granted, and gives the token of the first holder.
    pub(crate) fn granted(&self, mode: Mode, first: u64) -> FencingToken {
        self.keep(first, last_of(mode, first))
    }

    /// Keeps a token that was drawn alone.
    pub(crate) fn drawn(&self, token: u64) -> FencingToken {
        self.keep(token, token)
    }

    fn keep(&self, current: u64, last: u64) -> FencingToken {
        *self.lock() = Reserved { current, last };
        FencingToken::new(current)
    }

    /// The token of the next holder, if there is one left.
    pub(crate) fn next(&self) -> Option<FencingToken> {
        let mut reserved = self.lock();
        if reserved.current >= reserved.last {
            return None;
        }
        reserved.current += 1;
        Some(FencingToken::new(reserved.current))
    }

    pub(crate) fn current(&self) -> u64 {
        self.lock().current
    }

    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    fn lock(&self) -> MutexGuard<'_, Reserved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last token that a grant sets aside: those who share hand nothing over.
pub(crate) fn last_of(mode: Mode, first: u64) -> u64 {
    match mode {
        Mode::Exclusive => first + (BLOCK - 1),
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_lasts_for_its_holders_and_a_reader_has_one() {
        let tokens = Tokens::default();
        assert_eq!(tokens.next(), None);
        tokens.granted(Mode::Exclusive, 100);
        assert_eq!((tokens.current(), tokens.last()), (100, 131));
        assert_eq!(tokens.next(), Some(FencingToken::new(101)));
        assert_eq!(std::iter::from_fn(|| tokens.next()).count(), 30);
        tokens.granted(Mode::Shared, 200);
        assert_eq!((tokens.current(), tokens.next()), (200, None));
        tokens.drawn(300);
        assert_eq!((tokens.current(), tokens.next()), (300, None));
    }
}
