use serde::{Deserialize, Serialize};

/// A time that somebody had a lock, and how it came to that. Times are those of the clock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Span {
    /// Number of the key.
    pub(crate) key: u32,
    /// Number of the contender.
    pub(crate) contender: u32,
    /// The fencing token, or [`NO_TOKEN`].
    pub(crate) token: u64,
    /// When it was asked for; in the open loop, when it should have been.
    pub(crate) asked: u64,
    /// When the contender knew that it has the lock.
    pub(crate) acquired: u64,
    /// When it called release.
    pub(crate) let_go: u64,
    /// When release was over.
    pub(crate) released: u64,
}

/// No backend gives the largest number.
pub(crate) const NO_TOKEN: u64 = u64::MAX;

/// A request that was not served.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Waiting {
    pub(crate) key: u32,
    pub(crate) asked: u64,
}

/// The time that counts, between a warm-up and the end.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Window {
    /// When contenders begin.
    pub(crate) start: u64,
    /// From when on it counts.
    pub(crate) from: u64,
    /// When contenders end.
    pub(crate) end: u64,
}

impl Window {
    pub(crate) fn has(self, time: u64) -> bool {
        self.from <= time && time < self.end
    }

    pub(crate) fn length(self) -> u64 {
        self.end - self.from
    }
}

impl Span {
    /// Its length in the binary form that contenders send.
    pub(crate) const BYTES: usize = 48;

    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.contender.to_le_bytes());
        let rest = [
            self.token,
            self.asked,
            self.acquired,
            self.let_go,
            self.released,
        ];
        for number in rest {
            bytes.extend(number.to_le_bytes());
        }
    }

    /// `None` if there are other than [`Span::BYTES`] bytes.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (first, rest) = bytes.split_at(8);
        let (key, contender) = first.split_at(4);
        let mut rest = rest.chunks_exact(8).map(|eight| {
            let eight = eight.try_into().expect("BUG: chunks have this length");
            u64::from_le_bytes(eight)
        });
        Some(Self {
            key: u32::from_le_bytes(key.try_into().ok()?),
            contender: u32::from_le_bytes(contender.try_into().ok()?),
            token: rest.next()?,
            asked: rest.next()?,
            acquired: rest.next()?,
            let_go: rest.next()?,
            released: rest.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_wrote() {
        let span = Span {
            key: 1,
            contender: 2,
            token: 3,
            asked: 4,
            acquired: 5,
            let_go: 6,
            released: u64::MAX - 1,
        };
        let mut bytes = Vec::new();
        span.write(&mut bytes);
        assert_eq!(bytes.len(), Span::BYTES);
        assert_eq!(Span::read(&bytes), Some(span));
        assert_eq!(Span::read(&bytes[1..]), None);
    }
}
