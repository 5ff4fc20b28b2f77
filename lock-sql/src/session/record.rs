//! Holder records for `inspect`, `list` and `break`. A record is written once a lock has been held
//! for a moment, so that short holds cost nothing, or when an administrative request of the same
//! process needs it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::LeaseId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use super::actor::{Actor, HeldSessionLock};
use super::args::Args;
use super::context::SessionContext;
use crate::config::SqlMode;
use crate::error::SqlFailure;
use crate::wire::{QueryResult, SqlValue};

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct SharedHolder {
    pub(super) label: String,
    pub(super) token: u64,
    /// Unix time in microseconds, by our clock.
    pub(super) since: u64,
    pub(super) session: i64,
    pub(super) began: i64,
    /// The id that we gave the session, in hexadecimal.
    pub(super) by: String,
}

/// A record that is being written, or was.
#[derive(Clone, Debug)]
pub(super) struct Recording(watch::Receiver<bool>);

impl Recording {
    /// Returns when the record is written, or will not be.
    pub(super) async fn ended(mut self) {
        while self.0.changed().await.is_ok() {}
    }

    fn has_failed(&self) -> bool {
        *self.0.borrow()
    }
}

impl Actor {
    /// Records the holders whose record is due by `due`, or all of them, and again those whose record failed. In
    /// a session of one lock, the release waits for it; so does a downgrade.
    pub(super) fn record_holders(&mut self, due: Option<Instant>) {
        let is_due = |at: Instant| due.is_none_or(|due| at <= due);
        let has_failed = |held: &HeldSessionLock| {
            let recording = held.recording.as_ref();
            recording.is_some_and(Recording::has_failed)
        };
        let mut records = Vec::new();
        // Apart from `self`, which `record_args` borrows; it must not read `held`.
        let mut all = std::mem::take(&mut self.held);
        for (id, held) in &mut all {
            if held.record_at.is_some_and(is_due) || has_failed(held) {
                let (failed, recording) = watch::channel(false);
                (held.record_at, held.recording) = (None, Some(Recording(recording)));
                records.push((self.record_args(*id, held), held.is_shared, failed));
            }
        }
        self.held = all;
        if records.is_empty() {
            return;
        }
        let context = Arc::clone(&self.context);
        self.context.engine.spawn_service(async move {
            for (args, is_shared, failed) in records {
                let sql = match is_shared {
                    true => &context.statements.record_shared,
                    false => &context.statements.record,
                };
                if let Err(failure) = context.control(sql, args).await {
                    tracing::debug!(cause = %failure.cause, "the holder of a lock was not recorded");
                    failed.send_replace(true);
                }
                drop(failed);
            }
        });
    }

    /// The arguments of a statement that records a holder.
    fn record_args(&self, id: LeaseId, held: &HeldSessionLock) -> Args {
        let args = self.args(&held.key, id).with(Args::TOKEN, held.token);
        if held.is_shared {
            let entry = SharedHolder {
                label: held.label.clone(),
                token: held.token,
                since: held.since,
                session: self.number,
                began: held.began,
                by: self.handle.id.to_hex(),
            };
            let entry = serde_json::to_string(&entry).unwrap_or_default();
            return args.with(Args::LABEL, entry).with(Args::TEXT, id.to_hex());
        }
        let args = args.with(Args::LABEL, held.label.as_str());
        match self.context.mode {
            // In advisory mode `BEGAN` is the number of the lock, set by `args`.
            SqlMode::Advisory => args,
            _ => args.with(Args::BEGAN, held.began),
        }
    }
}

/// Removes the readers whose sessions have ended without a release from the records: without that, the
/// record of a key that is always read would grow with each of them.
pub(super) async fn forget_dead_readers(context: &SessionContext) -> Result<(), SqlFailure> {
    let statements = &context.statements;
    let answer = context.control(&statements.readers, Args::new()).await?;
    for (key, ids) in dead_readers(&answer) {
        let args = Args::new().with(Args::ROW_KEY, key).with(Args::TEXT, ids);
        context.control(&statements.forget_readers, args).await?;
    }
    Ok(())
}

/// The keys with readers whose sessions do not exist, each with an object that has the ids of these readers
/// as names.
fn dead_readers(answer: &QueryResult) -> Vec<(Vec<u8>, String)> {
    let (mut records, mut sessions) = (Vec::new(), HashSet::new());
    for row in &answer.rows {
        match row.as_slice() {
            [SqlValue::Bytes(key), SqlValue::Bytes(record)] => records.push((key, record)),
            [SqlValue::Bytes(id)] => {
                sessions.insert(id.as_slice());
            }
            _ => {}
        }
    }
    let is_dead = |reader: &SharedHolder| {
        LeaseId::from_hex(&reader.by).is_some_and(|by| !sessions.contains(&by.as_bytes()[..]))
    };
    let dead = records.into_iter().filter_map(|(key, record)| {
        // Another program may have written it.
        let readers: BTreeMap<String, SharedHolder> = serde_json::from_slice(record).ok()?;
        let dead = readers.iter().filter(|(_, reader)| is_dead(reader));
        let dead: BTreeMap<_, ()> = dead.map(|(id, _)| (id, ())).collect();
        let ids = serde_json::to_string(&dead).ok()?;
        (!dead.is_empty()).then(|| (key.clone(), ids))
    });
    dead.collect()
}

/// How long a lock is held before its holder is recorded.
pub(super) const RECORD_AFTER: Duration = Duration::from_millis(20);
