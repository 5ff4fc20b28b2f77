//! The record of a key on several masters: stored on a majority, and read from one.
//!
//! The largest token counts, and for the same token the largest version. A write picks a version larger
//! than any that a majority knows, so that of two consecutive writes every majority shows the later one.

use std::time::Duration;

use futures_util::StreamExt;
use polylock_core::admin::Record;
use polylock_core::{Error, ErrorKind, LockKey, Result};

use super::node::Quorum;
use super::votes::{Decision, Votes};
use crate::error::{RedisCause, RedisFailure};
use crate::keys::RedisKeys;
use crate::record::{StoredRecord, WriteReply};

/// The newest record that the nodes know; a majority has to reply.
pub(super) async fn newest(quorum: &Quorum, key: &LockKey) -> Result<Option<StoredRecord>> {
    let at = &*RedisKeys::record(key)?;
    let found = quorum.ask_all(|node| async move { node.server.record(at).await });
    let found = found.await?.into_iter().flatten();
    Ok(found.max_by_key(|stored| (stored.record.token, stored.version)))
}

/// Stores a record on a majority; false if a larger token is stored there.
pub(super) async fn write(
    quorum: &Quorum,
    key: &LockKey,
    record: &Record,
    keep: Duration,
) -> Result<bool> {
    record.check()?;
    let at = &*RedisKeys::record(key)?;
    let mut above = newest(quorum, key).await?.map_or(0, |last| last.version);
    for _ in 0..Record::MAX_WRITES {
        let (record, version) = (record.clone(), Record::version_above(above));
        let stored = &StoredRecord { record, version };
        let mut answers =
            quorum.ask(|node| async move { node.server.write_version(at, stored, keep).await });
        let (mut votes, mut failures) = (Votes::new(quorum.len()), Vec::new());
        while let Some((_, answer)) = answers.next().await {
            votes.add(match answer {
                Ok(WriteReply::Stored) => Some(true),
                Ok(WriteReply::LargerToken) => Some(false),
                Ok(WriteReply::LargerVersion(version)) => {
                    above = above.max(version);
                    None
                }
                Err(failure) => {
                    failures.push(failure);
                    None
                }
            });
        }
        match votes.verdict() {
            Decision::No => return Ok(false),
            // A majority that includes the node with the larger version would return that version.
            _ if above > version => {}
            Decision::Yes => return Ok(true),
            Decision::Open | Decision::Unknown => {
                return Err(undecided(quorum, &failures).with_unknown_outcome());
            }
        }
    }
    // Some nodes may have stored a version that no majority has.
    Err(RedisCause::Overtaken.unknown().into())
}

/// The error of a write that no majority has stored and no majority has refused.
fn undecided(quorum: &Quorum, failures: &[RedisFailure]) -> Error {
    if quorum.is_too_few(failures.len()) {
        return quorum.unavailable(failures, &[]);
    }
    let message = "the nodes that answer disagree: some have stored the record, others have one with a \
                   larger token, and neither is a majority";
    Error::new(ErrorKind::Unavailable, message)
}
