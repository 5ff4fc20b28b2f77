use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind, Result};
use crate::token::FencingToken;

/// A few bytes that a holder has stored beside its lock, for later holders and observers.
///
/// The token of the holder is stored with them, so that a holder that was paused beyond its lease
/// cannot replace what its successor has stored.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::admin::Record;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = polylock_core::memory::Memory::new();
/// let admin = locks.admin().ok_or("the backend has no administration")?;
///
/// let guard = locks.lock("report").await?;
/// let token = guard.fencing_token().ok_or("the backend has no tokens")?;
/// let record = Record::new(token, "done up to page 7");
/// assert!(admin.write_record(guard.key(), &record, Duration::from_secs(3600)).await?);
/// guard.release().await?;
///
/// let found = admin.record(&LockKey::new("report")?).await?;
/// assert_eq!(found, Some(record));
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// The fencing token of the holder that stored it.
    pub token: FencingToken,
    /// What it stored.
    pub bytes: Vec<u8>,
}

impl Record {
    /// Max length of a record, in bytes.
    pub const MAX_LEN: usize = 4096;

    /// How often a backend tries to write a record, each time with a larger [version](Self::version_above),
    /// until it gives up.
    pub const MAX_WRITES: usize = 16;

    /// A record of the holder with `token`.
    #[must_use]
    pub fn new(token: FencingToken, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            token,
            bytes: bytes.into(),
        }
    }

    /// Refuses a record that is too long. Every backend calls it before it sends anything.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest).
    pub fn check(&self) -> Result<()> {
        if self.bytes.len() > Self::MAX_LEN {
            let (len, most) = (self.bytes.len(), Self::MAX_LEN);
            let message = format!("a record of {len} bytes; {most} at most");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        Ok(())
    }

    /// Returns the text form: the token in decimal, a line feed and the bytes. For implementors.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{}\n", self.token).into_bytes();
        text.extend(&self.bytes);
        text
    }

    /// Reads the text form, and returns `None` for any other text. For implementors.
    #[must_use]
    pub fn decode(text: &[u8]) -> Option<Self> {
        let end = text.iter().position(|byte| *byte == b'\n')?;
        let token = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
        Some(Self::new(FencingToken::new(token), &text[end + 1..]))
    }

    /// A version for the next write of a record, for backends that order the records of one token.
    ///
    /// It is larger than `stored` and than every earlier result in this process, and not below the wall clock
    /// in microseconds. A delayed copy of an earlier write therefore replaces no later one.
    #[must_use]
    pub fn version_above(stored: u64) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
        let next = |last: u64| last.max(stored).saturating_add(1).max(now);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let last = LAST.fetch_update(set, get, |last| Some(next(last)));
        // The closure always has a value.
        last.map_or(u64::MAX, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_text_form() {
        for bytes in [&b""[..], b"12\n\0\xff\n"] {
            let record = Record::new(FencingToken::new(u64::MAX), bytes);
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        for foreign in [&b""[..], b"7", b"\n", b"x\n7", b"\xff\n7"] {
            assert_eq!(Record::decode(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn versions_grow_whatever_the_clock_says() {
        let mut last = Record::version_above(0);
        let ahead = last + 3_600_000_000;
        for stored in [0, ahead, 0, 7] {
            let next = Record::version_above(stored);
            assert!(next > last.max(stored), "{next} after {last}");
            last = next;
        }
        assert!(last > ahead);
    }
}
