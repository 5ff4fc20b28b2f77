//! Acquires a lock.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::LeaseId;
use polylock_core::{LockKey, Mode};
use tokio::time::Instant;

use super::codec::{self, Stored, whole_micros};
use super::row::WriteBackoff;
use super::{DatabaseStore, drawn, on};
use crate::error::SqlFailure;
use crate::store::AcquireResult;
use crate::table::{CLAIM, LockRefusal, MAX_WAITERS, SqlClaim, TICKET, TokenRange, is_sharing};
use crate::wire::{QueryResult, Sql, SqlValue};

impl DatabaseStore {
    pub(super) async fn take_lock(
        &self,
        key: &LockKey,
        claim: &SqlClaim,
    ) -> Result<AcquireResult, SqlFailure> {
        let shares = is_sharing(claim.mode);
        let _turn = match shares {
            true => self.key_mutexes.wait(key).await,
            false => None,
        };
        // A grant counts from the start of the attempt: it must not be old when it arrives.
        let timeout = self.timeout.min(claim.ttl / 4);
        let mut again = match claim.is_queued {
            // The waiters behind it wait for it.
            true => WriteBackoff::urgent(timeout),
            false => WriteBackoff::within(timeout),
        };
        let begun = Instant::now();
        let (mut is_made, mut place) = (false, None);
        let take = match (claim.is_queued, claim.is_notified) {
            _ if shares => None,
            // Acquires a lock without a queue.
            (false, _) => Some(&self.statements.take),
            (true, true) => self.statements.take_in_turn.as_ref(),
            (true, false) => None,
        };
        loop {
            // A statement that also returned the holder would be slower for a free lock.
            if let Some(take) = take
                && let Some(tokens) = self.take_free(key, claim, take).await?
            {
                return Ok(Ok(tokens));
            }
            #[cfg(feature = "postgres")]
            if claim.is_notified {
                // Before the rows are read, or a release in between would be missed.
                self.request_notification(key).await?;
            }
            let Some(mut stored) = self.load(key).await? else {
                // It is not deleted soon; a client that may not see it would insert it forever.
                if std::mem::replace(&mut is_made, true) {
                    again.wait(&self.engine).await?;
                }
                self.insert(key).await?;
                continue;
            };
            let ticket = claim.ticket;
            let late = ticket.and_then(|ticket| stored.lock.late_place(ticket, &stored.ctx));
            let mut taken = stored.lock.take(claim, &stored.ctx);
            if taken.is_ok() && !shares {
                stored.lock.evict(&stored.ctx);
            }
            if let (Ok(_), Some(slot)) = (&taken, late) {
                stored.lock.leave_unwritten(slot);
            }
            if let (Err(refusal), Some(ticket)) = (&mut taken, ticket)
                && stored.lock.is_ticket_due(claim, &stored.ctx)
            {
                self.enqueue(key, (ticket, claim.mode), &stored).await?;
                let others = stored.lock.queue_len(&stored.ctx).min(MAX_WAITERS - 1);
                refusal.ahead = refusal.ahead.or(Some(others));
                place = refusal.ahead;
            }
            if !stored.lock.is_changed() || self.store_for(claim.id, &stored).await? {
                if taken.is_ok() && shares {
                    self.shared_leases.note(claim.id, self.engine.now());
                }
                if let (Ok(_), Some(_), Some(ticket)) = (&taken, late, ticket) {
                    self.leave_queue(key, ticket);
                }
                return Ok(taken.map_err(|refusal| self.here(refusal, claim.mode, &stored)));
            }
            let waited = again.wait(&self.engine).await;
            if claim.waits && (waited.is_err() || begun.elapsed() >= WRITE_TIMEOUT) {
                let ahead = taken.err().and_then(|refusal| refusal.ahead).or(place);
                let until = self.engine.now();
                return Ok(Err(LockRefusal { until, ahead }));
            }
            waited?;
        }
    }

    /// Enters a waiter into the queue, or keeps its place, without forcing other clients to repeat their
    /// changes.
    async fn enqueue(
        &self,
        key: &LockKey,
        (ticket, mode): (LeaseId, Mode),
        stored: &Stored,
    ) -> Result<(), SqlFailure> {
        let slot = stored.lock.place(ticket, mode, &stored.ctx);
        let (name, ttl) = (SqlValue::from(key.as_bytes()), whole_micros(TICKET));
        if let Some(note) = &self.statements.note_queue {
            let values = vec![name.clone(), SqlValue::from(ttl)];
            self.pool.ask(note, values).await?;
        }
        let id = SqlValue::from(&ticket.as_bytes()[..]);
        let values = vec![
            name,
            SqlValue::from(u64::from(slot)),
            id,
            SqlValue::from(ttl),
        ];
        let enter = &self.statements.enter_queue;
        let entered = self.run_for(ticket, enter, values).await;
        // A place in the queue is no lock.
        entered.map_err(|failure| failure.cause)?;
        Ok(())
    }

    /// Frees the place of a new holder, unless another waiter has entered its slot: an entry changes no
    /// version. In the background, because the lease has begun.
    fn leave_queue(&self, key: &LockKey, ticket: LeaseId) {
        let (pool, values) = (Arc::clone(&self.pool), on(key, ticket));
        let leave = Arc::clone(&self.statements.leave_queue);
        self.engine.spawn(async move {
            if let Err(failure) = pool.ask(&leave, values).await {
                tracing::debug!(cause = %failure.cause, "a place in the queue is left to end");
            }
        });
    }

    async fn take_free(
        &self,
        key: &LockKey,
        claim: &SqlClaim,
        take: &Arc<Sql>,
    ) -> Result<Option<TokenRange>, SqlFailure> {
        let mut values = vec![
            SqlValue::from(key.as_bytes()),
            SqlValue::from(&claim.id.as_bytes()[..]),
            SqlValue::from(claim.label.as_str()),
            SqlValue::from(whole_micros(claim.ttl)),
        ];
        if let Some(ticket) = claim.ticket.filter(|_| claim.is_queued) {
            values.push(SqlValue::from(&ticket.as_bytes()[..]));
        }
        let answer = self.run_for(claim.id, take, values).await?;
        Ok(drawn(&answer))
    }

    /// Writes the rows of a key back that have a new holder.
    async fn store_for(&self, id: LeaseId, stored: &Stored) -> Result<bool, SqlFailure> {
        let (sql, values) = self.statements.store.with(&codec::write(stored));
        Ok(self.run_for(id, &sql, values).await?.affected > 0)
    }

    pub(super) async fn run_for(
        &self,
        id: LeaseId,
        sql: &Arc<Sql>,
        values: Vec<SqlValue>,
    ) -> Result<QueryResult, SqlFailure> {
        self.in_flight.run(&self.pool, id, (sql, values)).await
    }

    /// Inserts the row of a key. It does not matter if another client has inserted it.
    async fn insert(&self, key: &LockKey) -> Result<(), SqlFailure> {
        let values = vec![SqlValue::from(key.as_bytes())];
        self.pool.ask(&self.statements.insert, values).await?;
        self.purge.grown();
        Ok(())
    }

    /// Asks for a notification when the lock is released, if notifications arrive.
    #[cfg(feature = "postgres")]
    pub(super) async fn request_notification(&self, key: &LockKey) -> Result<(), SqlFailure> {
        if let (Some(listener), Some(want)) = (&self.listener, &self.statements.want)
            && listener.attend(key)
        {
            let (values, sent) = (vec![SqlValue::from(key.as_bytes())], self.engine.now());
            self.pool.ask(want, values).await?;
            listener.note_requested(key, sent);
        }
        Ok(())
    }

    /// A refusal in the time of this process.
    pub(super) fn here(&self, refusal: LockRefusal, mode: Mode, stored: &Stored) -> LockRefusal {
        let LockRefusal { mut until, ahead } = refusal;
        // An exclusive waiter comes back to renew its claim.
        if stored.lock.is_kept_by_many(mode, &stored.ctx) {
            until = until.min(stored.ctx.moment + CLAIM / 2);
        }
        let left = until.since(stored.ctx.moment);
        let until = self.engine.now() + left;
        LockRefusal { until, ahead }
    }
}

/// How long a waiter repeats a write that others were faster than. Then it polls again: a poll without a
/// result for a second counts as one without a reply.
const WRITE_TIMEOUT: Duration = Duration::from_millis(250);
