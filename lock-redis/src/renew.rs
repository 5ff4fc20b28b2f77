//! Renewals: many leases in one call.

use std::time::Duration;

use futures_util::future::join_all;
use polylock_core::engine::{LeaseId, before};
use polylock_core::{LeaseState, LostReason, RenewalRequest, TtlRule};
use tokio::sync::Semaphore;
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout};

use crate::error::{RedisCause, RedisFailure};
use crate::keys::RedisKeys;
use crate::reply::{self, LeaseReply};
use crate::script::RENEW;
use crate::server::{Server, millis};
use crate::topology::{Call, Done, ReplicaWait, WaitBatch};

/// Called with each lease that is certainly lost.
pub(crate) type Lost<'a> = dyn Fn(LeaseId, LostReason) + Send + Sync + 'a;

/// Returns `<token>|<held for (ms)>` of a lease if the server does not know it yet.
pub(crate) type Note<'a> = dyn Fn(LeaseId) -> Option<String> + Send + Sync + 'a;

impl Server {
    /// Extends leases in as few calls as the slots of their keys allow. Reports each loss to `lost` once its
    /// server is confirmed, because the other calls take longer.
    pub(crate) async fn renew(
        &self,
        due: &[RenewalRequest],
        lost: &Lost<'_>,
        note: &Note<'_>,
    ) -> Vec<LeaseReply> {
        // The scheduler drops all results of a round that takes longer than its shortest timeout.
        let shortest = due.iter().map(|one| one.timeout).min();
        let limit = Instant::now() + shortest.unwrap_or_default() * 3 / 4;
        self.renew_until(limit, due, lost, note).await
    }

    /// The same until a limit for the whole round.
    pub(crate) async fn renew_until(
        &self,
        limit: Instant,
        due: &[RenewalRequest],
        lost: &Lost<'_>,
        note: &Note<'_>,
    ) -> Vec<LeaseReply> {
        let one_slot = self.one_slot();
        let (most, at_once) = match one_slot {
            true => (MAX_RENEWALS, 1),
            false => (1, usize::MAX),
        };
        // One call after the other, to leave time for other clients of the server.
        let turns = Semaphore::new(at_once.min(Semaphore::MAX_PERMITS));
        let batch = (!one_slot && self.replicas.is_some()).then(WaitBatch::default);
        let within = (limit, &turns, batch.as_ref());
        let chunks = due
            .chunks(most)
            .map(|chunk| self.renew_chunk(chunk, within, lost, note));
        let states = join_all(chunks);
        let states = match batch {
            // The budget of a task could be used up before all calls have joined the batch.
            Some(_) => unconstrained(states).await,
            None => states.await,
        };
        states.into_iter().flatten().collect()
    }

    /// Extends leases in one call, or in more if the user may not use the keys of some: the server refuses a call with
    /// one such key.
    async fn renew_chunk(
        &self,
        due: &[RenewalRequest],
        within: RenewalLimits<'_>,
        lost: &Lost<'_>,
        note: &Note<'_>,
    ) -> Vec<LeaseReply> {
        let states = self.renew_together(due, within, lost, note).await;
        let Some([first, second]) = halves(due, &states) else {
            return states;
        };
        // Boxed: rarely needed.
        let renewing = Box::pin(async move {
            let (mut parts, mut states) = (vec![second, first], Vec::with_capacity(due.len()));
            let mut calls = 0;
            while let Some(part) = parts.pop() {
                let some = self.renew_together(part, within, lost, note).await;
                calls += 1;
                match halves(part, &some) {
                    Some([first, second]) if calls < MAX_PARTS => parts.extend([second, first]),
                    _ => states.extend(some),
                }
            }
            states
        });
        renewing.await
    }

    async fn renew_together(
        &self,
        due: &[RenewalRequest],
        (limit, turns, batch): RenewalLimits<'_>,
        lost: &Lost<'_>,
        note: &Note<'_>,
    ) -> Vec<LeaseReply> {
        let extending = async {
            let _turn = turns.acquire().await;
            let left = limit.saturating_duration_since(Instant::now());
            let wait = self.replicas.filter(|_| self.wants_proof());
            let wait = wait.map(|(acks, longest)| (acks, longest.min(left / 2)));
            // A cluster refuses several keys, some of which are missing, while it moves their slot.
            let has_notes = self.one_slot();
            let notes = if has_notes { notes_of(due) } else { Vec::new() };
            let (mut states, done) = self.extend(due, &notes, note, (wait, batch)).await?;
            if !has_notes {
                let left = limit.saturating_duration_since(Instant::now());
                let within = (left / 2).min(Duration::from_millis(250));
                self.find_broken(due, &mut states, within).await;
                if reply::have_notes_to_keep(&done.value) {
                    self.keep_notes(due, within).await;
                }
            }
            Ok::<_, RedisFailure>((wait, states, done))
        };
        let extended = before(limit, extending).await;
        let extended = extended.unwrap_or_else(|| Err(RedisCause::LateRenewal.unknown()));
        let (wait, states, done) = match extended {
            Ok(extended) => extended,
            Err(failure) => return due.iter().map(|_| Err(failure.clone())).collect(),
        };
        let acked = Self::acknowledged(&done, wait);
        let may_count = |state: &LeaseReply| match state {
            Ok(LeaseState::Held) => acked.is_ok(),
            // A server that is not the master does not know whether the lease is held.
            Ok(_) => true,
            Err(_) => false,
        };
        let master = match states.iter().any(may_count) {
            true => {
                let left = limit.saturating_duration_since(Instant::now());
                self.confirm_master(&done, Duration::ZERO, left).await
            }
            false => Ok(()),
        };
        let confirmed = |state: LeaseReply| -> LeaseReply {
            let state = state?;
            if state == LeaseState::Held {
                acked.clone()?;
            }
            master.clone().map(|()| state)
        };
        let states: Vec<_> = states.into_iter().map(confirmed).collect();
        for (one, state) in due.iter().zip(&states) {
            if let Ok(LeaseState::Lost(reason)) = state {
                lost(one.id, *reason);
            }
        }
        states
    }

    /// Finds out whether the only lease of a call, if it is lost, was broken by an administrator.
    async fn find_broken(
        &self,
        due: &[RenewalRequest],
        states: &mut Vec<LeaseReply>,
        within: Duration,
    ) {
        let is_lost = |state: &LeaseReply| matches!(state, Ok(LeaseState::Lost(_)));
        if !states.iter().all(is_lost) {
            return;
        }
        let notes = notes_of(due);
        let extending = self.extend(due, &notes, &|_| None, (None, None));
        // Without a reply the loss is certain all the same, and a lost lease is not extended.
        if let Ok(Ok((found, _))) = timeout(within, extending).await
            && found.iter().all(is_lost)
        {
            *states = found;
        }
    }

    /// Keeps what is known of shared holders. Without a reply, a later renewal does it.
    async fn keep_notes(&self, due: &[RenewalRequest], within: Duration) {
        for one in due {
            let notes = RedisKeys::notes(&one.key);
            let mut keep = redis::cmd("PEXPIRE");
            keep.arg(&notes).arg(NOTES_MS);
            drop(timeout(within, self.topology.call(Call::plain(&notes, &keep))).await);
        }
    }

    /// `notes`: those of all leases, or empty for a single lease; then the reply cannot say that it was broken.
    async fn extend(
        &self,
        due: &[RenewalRequest],
        notes: &[Vec<u8>],
        note: &Note<'_>,
        (wait, batch): (Option<ReplicaWait>, Option<&WaitBatch>),
    ) -> Result<(Vec<LeaseReply>, Done), RedisFailure> {
        let is_right = notes.len() == due.len() || due.len() == 1;
        debug_assert!(is_right, "BUG: several leases without their notes");
        let mut keys = Vec::with_capacity(due.len() + notes.len());
        for (n, one) in due.iter().enumerate() {
            keys.push(one.key.as_bytes());
            keys.extend(notes.get(n).map(Vec::as_slice));
        }
        let text = |one: &RenewalRequest| {
            let note = note(one.id).unwrap_or_default();
            let rule = match one.rule {
                TtlRule::Exactly => "exact",
                _ => "least",
            };
            [one.id.to_hex(), millis(one.ttl), rule.to_owned(), note]
        };
        let texts: Vec<[String; 4]> = due.iter().map(text).collect();
        let args: Vec<&[u8]> = texts.iter().flatten().map(String::as_bytes).collect();
        let call = Call {
            wait,
            is_renewal: true,
            batch,
            ..Call::script(&RENEW, &keys, &args)
        };
        let done = self.topology.call(call).await?;
        let states = reply::lease_states(&done.value, due.len(), &done.server)?;
        Ok((states, done))
    }
}

/// When a round of renewals is over, whose turn it is to send a call, and the calls that wait for replicas together.
type RenewalLimits<'a> = (Instant, &'a Semaphore, Option<&'a WaitBatch>);

/// How many calls a refused one is replaced by before its other halves fail as a whole: enough to find a few keys among
/// thousands.
const MAX_PARTS: usize = 64;

/// The halves of a call that the server refused because of one of its keys.
fn halves<'a>(
    due: &'a [RenewalRequest],
    states: &[LeaseReply],
) -> Option<[&'a [RenewalRequest]; 2]> {
    let is_refused = |state: &LeaseReply| state.as_ref().is_err_and(RedisFailure::is_of_key);
    let is_refused = due.len() > 1 && states.iter().all(is_refused);
    is_refused.then(|| due.split_at(due.len() / 2).into())
}

fn notes_of(due: &[RenewalRequest]) -> Vec<Vec<u8>> {
    due.iter().map(|one| RedisKeys::notes(&one.key)).collect()
}

/// For how long renewals keep notes: an hour longer than the longest lease, as `renew.lua` does.
const NOTES_MS: u64 = 25 * 3_600_000;

/// More leases in one call would block other clients of the server for milliseconds.
pub(crate) const MAX_RENEWALS: usize = 2_000;
