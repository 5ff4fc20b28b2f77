use std::time::Duration;

use polylock_core::engine::{Entropy, SeededEntropy};

/// Repeatable numbers from a seed.
#[derive(Debug)]
pub struct Rng(SeededEntropy);

impl Rng {
    /// A sequence of its own for each part of a history, so that one part that draws more numbers
    /// does not shift those of the others.
    #[must_use]
    pub fn stream(seed: u64, part: &str, number: usize) -> Self {
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        let bytes = part
            .bytes()
            .chain(seed.to_le_bytes())
            .chain(number.to_le_bytes());
        // The first number mixes what is left of the likeness of the seeds.
        let first = Self(SeededEntropy::new(hash(bytes))).next();
        Self(SeededEntropy::new(first))
    }

    /// The next number, of all bits.
    #[expect(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A number less than `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True `per_mille` times out of a thousand.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    /// Whole milliseconds in `low..=high`.
    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high - low + 1))
    }

    /// A place in a list of this length, which is not zero.
    pub fn index(&mut self, len: usize) -> usize {
        let limit = u64::try_from(len).unwrap_or(u64::MAX);
        usize::try_from(self.below(limit)).unwrap_or(0)
    }

    /// One of the items, of which there is at least one.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }
}

/// FNV-1a, which is the same everywhere and forever.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
