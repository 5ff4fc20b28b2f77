//! Who holds a lock, for people: written when tokens are drawn, and otherwise once somebody has
//! held the lock for a moment, so that short holds cost nothing.

use std::sync::Arc;
use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::LeaseId;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor::Actor;
use super::args::Args;
use super::lost;
use super::terms::SessionMode;
use crate::error::Failure;

/// One of those who share a lock.
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
        match self.terms.mode {
            SessionMode::Row => args.with(Args::BEGAN, began),
            // There it is what is locked.
            SessionMode::Advisory => args,
        }
    }

    /// Records those who have held their locks for long enough. Nothing but their release waits for it.
    pub(super) fn record_holders(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self
            .held
            .iter_mut()
            .filter(|(_, held)| held.record_at.is_some_and(|at| at <= now))
            .map(|(id, held)| {
                // Told once; the next draw does it again.
                held.record_at = None;
                let (written, recording) = oneshot::channel();
                held.recording = Some(recording);
                let holder = (held.key.clone(), held.label.clone());
                (*id, holder, held.began, held.first_token, written)
            })
            .collect();
        let args = due
            .into_iter()
            .map(|(id, (key, label), began, token, written)| {
                let args = self.holder_args(&key, id, &label, began);
                (args.with(Args::TOKEN, token), written)
            });
        let (args, terms): (Vec<_>, _) = (args.collect(), Arc::clone(&self.terms));
        self.terms.engine.spawn_service(async move {
            for (args, written) in args {
                let recorded = terms.clerk.statement(&terms.texts.record, args.into_vec());
                if let Err(failure) = recorded.await {
                    let error = lock_core::Error::from(failure);
                    tracing::debug!(%error, "the holder of a lock was not recorded");
                }
                drop(written);
            }
        });
    }

    pub(super) async fn record_shared(
        &self,
        key: &LockKey,
        id: LeaseId,
        label: &str,
        began: i64,
        token: u64,
    ) -> Result<(), Failure> {
        let entry = Entry {
            label: label.to_owned(),
            token,
            since: lost::unix_now(),
            session: self.number,
            began,
            by: self.handle.id.to_hex(),
        };
        let entry = serde_json::to_string(&entry).unwrap_or_default();
        let args = self
            .args(key, id)
            .with(Args::LABEL, entry)
            .with(Args::TEXT, id.to_hex());
        let recorded = self
            .terms
            .clerk
            .statement(&self.terms.texts.record_shared, args.into_vec());
        recorded.await.map(drop)
    }
}

/// How long somebody holds a lock before that is recorded.
pub(super) const RECORD_AFTER: Duration = Duration::from_millis(100);
