use super::mutex::Mutex;
use crate::token::FencingToken;

/// Fencing tokens that were drawn together: the first for the holder, the others for hand-overs in this process. For
/// implementors. Empty at first.
///
/// # Examples
///
/// ```
/// use polylock_core::FencingToken;
/// use polylock_core::engine::TokenBlock;
///
/// let tokens = TokenBlock::default();
/// assert_eq!(tokens.next(), None);
/// assert_eq!(tokens.begin(100, 101).value(), 100); // what the server has granted
/// assert_eq!(tokens.next().map(FencingToken::value), Some(101)); // a hand-over without a request
/// assert_eq!(tokens.next(), None); // the next one needs another block
/// assert_eq!(tokens.current(), 101);
/// ```
#[derive(Debug, Default)]
pub struct TokenBlock(Mutex<DrawnTokens>);

/// Both are 0 before the first block.
#[derive(Clone, Copy, Debug, Default)]
struct DrawnTokens {
    current: u64,
    last: u64,
}

impl TokenBlock {
    /// Replaces the block by the tokens from `first` to `last`, and returns the first one.
    pub fn begin(&self, first: u64, last: u64) -> FencingToken {
        let current = first;
        *self.0.lock() = DrawnTokens { current, last };
        FencingToken::new(first)
    }

    /// The token of the next holder; `None` if none is left.
    #[must_use]
    pub fn next(&self) -> Option<FencingToken> {
        let mut drawn = self.0.lock();
        if drawn.current >= drawn.last {
            return None;
        }
        drawn.current += 1;
        Some(FencingToken::new(drawn.current))
    }

    /// The token of the holder; 0 before the first block.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.0.lock().current
    }

    /// The end of the block; 0 before the first one.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.0.lock().last
    }
}
