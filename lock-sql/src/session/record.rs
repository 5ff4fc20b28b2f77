//! Holder records for `inspect`, `list` and `break`. A record is written once a lock has been held
//! for a moment, so that short holds cost nothing, or when an administrative request of the same
//! process needs it.

use std::sync::Arc;
use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::LeaseId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use super::actor::Actor;
use super::args::Args;
use super::context::SessionMode;
use super::loss_report;

/// One shared holder.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Entry {
    pub(super) label: String,
    pub(super) token: u64,
    /// Unix time in microseconds, by our clock.
    pub(super) since: u64,
    pub(super) session: i64,
    pub(super) began: i64,
    /// The id that we gave the session, in hexadecimal.
    pub(super) by: String,
}

impl Actor {
    /// What a statement needs that records an exclusive holder.
    pub(super) fn holder_args(&self, key: &LockKey, id: LeaseId, label: &str, began: i64) -> Args {
        let args = self.args(key, id).with(Args::LABEL, label);
        match self.context.mode {
            SessionMode::Row => args.with(Args::BEGAN, began),
            // There it is what is locked.
            SessionMode::Advisory => args,
        }
    }

    /// Records the holders whose record is due by `due`, or all of them. Only their release waits
    /// for it.
    pub(super) fn record_holders(&mut self, due: Option<Instant>) {
        let mut records = Vec::new();
        for (id, held) in &mut self.held {
            if held
                .record_at
                .is_none_or(|at| due.is_some_and(|due| at > due))
            {
                continue;
            }
            held.record_at = None;
            let (written, recording) = watch::channel(());
            held.recording = Some(recording);
            let (key, label, began) = (held.key.clone(), held.label.clone(), held.began);
            records.push((*id, key, label, began, held.token, held.is_shared, written));
        }
        if records.is_empty() {
            return;
        }
        let records: Vec<_> = records
            .into_iter()
            .map(|(id, key, label, began, token, is_shared, written)| {
                let args = match is_shared {
                    true => self.sharer_args(&key, id, &label, began, token),
                    false => {
                        let args = self.holder_args(&key, id, &label, began);
                        args.with(Args::TOKEN, token)
                    }
                };
                (args, is_shared, written)
            })
            .collect();
        let context = Arc::clone(&self.context);
        self.context.engine.spawn_service(async move {
            for (args, is_shared, written) in records {
                let sql = match is_shared {
                    true => &context.statements.record_shared,
                    false => &context.statements.record,
                };
                if let Err(failure) = context.control_pool.message(sql, args.into_vec()).await {
                    let error = lock_core::Error::from(failure);
                    tracing::debug!(%error, "the holder of a lock was not recorded");
                }
                drop(written);
            }
        });
    }

    fn sharer_args(&self, key: &LockKey, id: LeaseId, label: &str, began: i64, token: u64) -> Args {
        let entry = Entry {
            label: label.to_owned(),
            token,
            since: loss_report::unix_now(),
            session: self.number,
            began,
            by: self.handle.id.to_hex(),
        };
        let entry = serde_json::to_string(&entry).unwrap_or_default();
        self.args(key, id)
            .with(Args::LABEL, entry)
            .with(Args::TEXT, id.to_hex())
    }
}

/// How long a lock is held before its holder is recorded.
pub(super) const RECORD_AFTER: Duration = Duration::from_millis(20);
