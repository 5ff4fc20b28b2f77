//! The record of a key on several masters: stored on a majority, and read from one.
//!
//! The largest token counts, and of one token the largest version. A version is larger than what a majority
//! knows before it is stored, so that of two writes, one after the other, every majority shows the later one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use polylock_core::admin::Record;
use polylock_core::{LockKey, Result};

use super::node::Quorum;
use super::token::proposal;
use super::votes::{Decision, Votes};
use crate::keys::Keys;
use crate::record::StoredRecord;

/// The newest record that the nodes know, of which a majority has to answer.
pub(super) async fn newest(quorum: &Quorum, key: &LockKey) -> Result<Option<StoredRecord>> {
    let at: Arc<[u8]> = Keys::record(key)?.into();
    let found = quorum.ask_all(|node| {
        let at = Arc::clone(&at);
        async move { node.server.record(&at).await }
    });
    let found = found.await?.into_iter().flatten();
    Ok(found.max_by_key(|stored| (stored.record.token, stored.version)))
}

/// Stores a record on a majority; whether no larger token is in the way there.
pub(super) async fn write(
    quorum: &Quorum,
    key: &LockKey,
    record: &Record,
    keep: Duration,
) -> Result<bool> {
    record.check()?;
    let at: Arc<[u8]> = Keys::record(key)?.into();
    let last = newest(quorum, key).await?.map_or(0, |last| last.version);
    let record = record.clone();
    let version = proposal().max(last.saturating_add(1));
    let stored = Arc::new(StoredRecord { record, version });
    let mut answers = quorum.ask(|node| {
        let (at, stored) = (Arc::clone(&at), Arc::clone(&stored));
        async move { node.server.write_record(&at, &stored, keep).await }
    });
    let (mut votes, mut failures) = (Votes::new(quorum.len()), Vec::new());
    while let Some((_, answer)) = answers.next().await {
        votes.add(answer.as_ref().ok().copied());
        failures.extend(answer.err());
    }
    match votes.verdict() {
        Decision::Yes => Ok(true),
        Decision::No => Ok(false),
        Decision::Open | Decision::Unknown => {
            Err(quorum.unavailable(&failures, &[]).with_unknown_outcome())
        }
    }
}
