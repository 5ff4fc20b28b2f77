//! The record beside a lock, as a server stores it.

use std::time::Duration;

use polylock_core::FencingToken;
use polylock_core::admin::Record;
use redis::Value;

use crate::config::MAX_RETENTION;
use crate::error::{RedisCause, RedisFailure};
use crate::reply;
use crate::script::RECORD;
use crate::server::{Server, millis};
use crate::topology::Call;

/// A record with its version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct StoredRecord {
    pub(crate) record: Record,
    /// Orders the records of one token.
    pub(crate) version: u64,
}

/// The result of a write of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WriteReply {
    Stored,
    /// The stored record has a larger token.
    LargerToken,
    /// The stored record has the same token and this larger version.
    LargerVersion(u64),
}

impl Server {
    /// The record that is stored at a key.
    pub(crate) async fn record(&self, at: &[u8]) -> Result<Option<StoredRecord>, RedisFailure> {
        let found = self.read_record(at).await;
        // Whatever happened to the request, it changed nothing.
        found.map_err(|failure| failure.cause.into())
    }

    async fn read_record(&self, at: &[u8]) -> Result<Option<StoredRecord>, RedisFailure> {
        let mut get = redis::cmd("GET");
        get.arg(at);
        let done = self.topology.call(Call::plain(at, &get)).await;
        let done = self.explained(&[at], done).await?;
        self.confirm_read(&done).await?;
        match &done.value {
            Value::Nil => Ok(None),
            Value::BulkString(text) => match StoredRecord::decode(text) {
                Some(stored) => Ok(Some(stored)),
                None => Err(self.foreign(&done.server, at, "a string")),
            },
            reply => Err(reply::strange(reply)),
        }
    }

    /// Stores a record at a key in place of all earlier records of its token; false if a larger token is
    /// stored.
    pub(crate) async fn write_record(
        &self,
        at: &[u8],
        record: &Record,
        keep: Duration,
    ) -> Result<bool, RedisFailure> {
        let mut above = 0;
        for _ in 0..Record::MAX_WRITES {
            let (record, version) = (record.clone(), Record::version_above(above));
            let stored = StoredRecord { record, version };
            match self.write_version(at, &stored, keep).await? {
                WriteReply::Stored => return Ok(true),
                WriteReply::LargerToken => return Ok(false),
                // The clock of that writer is ahead, or that write is later.
                WriteReply::LargerVersion(version) => above = version,
            }
        }
        Err(RedisCause::Overtaken.into())
    }

    /// Stores a version of a record, unless a later version is stored.
    pub(crate) async fn write_version(
        &self,
        at: &[u8],
        stored: &StoredRecord,
        keep: Duration,
    ) -> Result<WriteReply, RedisFailure> {
        let keep = millis(keep.clamp(MIN_KEEP, MAX_RETENTION));
        let (keys, text) = ([at], stored.encode());
        let args = [&*text, keep.as_bytes()];
        let call = Call {
            wait: self.replicas,
            ..Call::script(&RECORD, &keys, &args)
        };
        let done = self.topology.call(call).await;
        let done = self.explained(&keys, done).await?;
        match &done.value {
            Value::Int(1) => {
                self.confirm_change(&done, self.timeout).await?;
                Ok(WriteReply::Stored)
            }
            Value::Int(0) => {
                self.confirm_master(&done, Duration::ZERO, self.timeout)
                    .await?;
                Ok(WriteReply::LargerToken)
            }
            Value::Nil => Err(self.foreign(&done.server, at, "a string")),
            reply => {
                let version = reply::text(reply).and_then(|text| text.parse().ok());
                let version = version.ok_or_else(|| reply::strange(reply))?;
                Ok(WriteReply::LargerVersion(version))
            }
        }
    }
}

/// The server has no shorter expiry.
const MIN_KEEP: Duration = Duration::from_millis(1);

impl StoredRecord {
    /// As `scripts/record.lua` compares it.
    fn encode(&self) -> Vec<u8> {
        let Self { record, version } = self;
        let mut text = format!("{:020}|{version:020}|", record.token.value()).into_bytes();
        text.extend_from_slice(&record.bytes);
        text
    }

    fn decode(text: &[u8]) -> Option<Self> {
        let (token, rest) = number(text)?;
        let (version, bytes) = number(rest)?;
        let record = Record::new(FencingToken::new(token), bytes);
        Some(Self { record, version })
    }
}

/// Reads 20 digits and a bar. Returns the number and the rest.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, rest) = text.split_at_checked(20)?;
    let rest = rest.strip_prefix(b"|")?;
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for (token, version, bytes) in [(0, 0, &b""[..]), (u64::MAX, 7, b"12|\0\xff|\n")] {
            let record = Record::new(FencingToken::new(token), bytes);
            let stored = StoredRecord { record, version };
            assert_eq!(StoredRecord::decode(&stored.encode()), Some(stored));
        }
    }

    #[test]
    fn what_others_have_written_is_no_record() {
        let nines = format!("{:020}|{}|", 1, "9".repeat(20));
        for text in [
            "",
            "hello",
            "7|0|text",
            "00000000000000000007|00000000000000000000",
            "+0000000000000000007|00000000000000000000|",
            &nines,
        ] {
            assert_eq!(StoredRecord::decode(text.as_bytes()), None, "{text:?}");
        }
    }
}
