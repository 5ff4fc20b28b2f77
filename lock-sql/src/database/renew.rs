//! Renews leases, in as few statements as possible.
//!
//! A statement for many leases waits for no row. It skips the leases of rows that another transaction
//! has locked. A statement for their key, which waits, renews those.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use polylock_core::engine::{LeaseId, Mutex, before};
use polylock_core::{LeaseState, LockKey, LostReason, RenewalRequest, TtlRule};
use tokio::time::Instant;

use super::codec::{self, Stored, whole_micros};
use super::row::WriteBackoff;
use super::statements::{Many, RenewalStatements};
use super::{DatabaseStore, on};
use crate::error::{SqlCause, SqlFailure};
use crate::on_drop::OnDrop;
use crate::table::LockRows;
use crate::wire::{ErrorClass, QueryResult, SqlValue};

type RenewalResult = Result<LeaseState, SqlFailure>;

/// Renewals that are due together, with the known results.
struct RenewalRound<'a> {
    due: &'a [RenewalRequest],
    states: Mutex<Vec<RenewalResult>>,
}

impl RenewalRound<'_> {
    fn report(&self, some: &[usize], state: &RenewalResult) {
        let mut states = self.states.lock();
        for at in some {
            states[*at] = state.clone();
        }
    }
}

impl DatabaseStore {
    pub(super) async fn renew_all(&self, due: &[RenewalRequest]) -> Vec<RenewalResult> {
        let timeout = due.iter().map(|due| due.timeout).min().unwrap_or_default();
        let until = Instant::now() + RenewalRequest::collect_for(due);
        let states = Mutex::new(vec![Err(SqlFailure::silent(timeout, true)); due.len()]);
        let round = RenewalRound { due, states };
        let mut order: Vec<_> = (0..due.len()).collect();
        // In one statement, the shared leases of a key do not conflict with each other.
        order.sort_by(|a, b| due[*a].key.cmp(&due[*b].key));
        let (shared, exclusive): (Vec<_>, Vec<_>) = order
            .into_iter()
            .partition(|at| self.shared_leases.has(due[*at].id));
        let (renew, renew_shared) = (&self.statements.renew, &self.statements.renew_shared);
        let exclusive = exclusive.chunks(MAX_BATCH).map(|batch| (renew, batch));
        let shared = shared.chunks(MAX_BATCH).map(|batch| (renew_shared, batch));
        let batches = exclusive.chain(shared);
        let batches = batches.map(|(renewals, batch)| self.renew_batch(&round, renewals, batch));
        before(until, join_all(batches)).await;
        round.states.into_inner()
    }

    /// Renews leases that are all exclusive or all shared, as far as this process remembers.
    async fn renew_batch(
        &self,
        round: &RenewalRound<'_>,
        renewals: &RenewalStatements,
        batch: &[usize],
    ) {
        let answer = match self.many(&renewals.free, rows(round, batch)).await {
            Ok(answer) => answer,
            Err(failure) => return round.report(batch, &Err(failure)),
        };
        let (renewed, missed) = divide(round, batch, renewals, &answer);
        round.report(&renewed, &Ok(LeaseState::Held));
        let ids = renewed.iter().map(|at| round.due[*at].id);
        self.shared_leases.refresh(ids, self.engine.now());
        if missed.is_empty() {
            return;
        }
        let mut locked: Vec<_> = match self.look_after(round, &missed, &answer).await {
            Ok(locked) => locked.into_values().collect(),
            Err(failure) => return round.report(&missed, &Err(failure)),
        };
        // There may be more locked rows than connections. With a random start, the same rows are not always last.
        let random = usize::from(self.engine.lease_id().as_bytes()[0]);
        let first = random % locked.len().max(1);
        locked.rotate_left(first);
        let waits = locked.iter().map(|some| self.renew_locked(round, some));
        join_all(waits).await;
    }

    /// Reads the states of leases that a statement may not have renewed. Returns those that are still
    /// held, by key: their rows were locked.
    async fn look_after<'a>(
        &self,
        round: &RenewalRound<'a>,
        missed: &[usize],
        answer: &QueryResult,
    ) -> Result<BTreeMap<&'a LockKey, Vec<usize>>, SqlFailure> {
        let keys: BTreeSet<_> = missed.iter().map(|at| &round.due[*at].key).collect();
        let rows = keys.iter().map(|key| vec![SqlValue::from(key.as_bytes())]);
        let load = &self.statements.load_many;
        let found = codec::read(&self.many(load, rows.collect()).await?.rows);
        let now = self.engine.now();
        let mut locked = BTreeMap::<_, Vec<_>>::new();
        for at in missed {
            let RenewalRequest { key, id, ttl, .. } = &round.due[*at];
            let state = match found.get(key) {
                // A held lock has its first row.
                None | Some(Some(Stored { version: None, .. })) => {
                    Ok(LeaseState::Lost(LostReason::Stolen))
                }
                Some(None) => Err(self.malformed(key)),
                Some(Some(Stored { lock, ctx, .. })) => match lock.held_slot(*id, ctx) {
                    Err(reason) => Ok(LeaseState::Lost(reason)),
                    Ok(_) if is_renewed(lock, *id, *ttl, answer) => Ok(LeaseState::Held),
                    Ok(slot) => {
                        if slot > 0 {
                            self.shared_leases.note(*id, now);
                        }
                        locked.entry(key).or_default().push(*at);
                        Err(SqlCause::Busy.into())
                    }
                },
            };
            round.report(&[*at], &state);
        }
        Ok(locked)
    }

    /// Renews leases of one key whose rows were locked, one statement at a time: a row with a queue of
    /// waiters passes from one to the next, and is never free.
    async fn renew_locked(&self, round: &RenewalRound<'_>, some: &[usize]) {
        let key = &round.due[some[0]].key;
        let Some(turn) = self.turn(key) else {
            // A statement of an earlier attempt still waits. This one is not sent, so its outcome is known.
            return;
        };
        let renewals = match self.shared_leases.has(round.due[some[0]].id) {
            true => &self.statements.renew_shared,
            false => &self.statements.renew,
        };
        // The statement may be executed after this round.
        let mut waits = SqlFailure::from(SqlCause::Busy);
        waits.outcome_unknown = true;
        round.report(some, &Err(waits));
        let (sql, values) = renewals.any.with(&rows(round, some));
        // At the end of the statement, which the caller may not see.
        let ended = move |_: Option<&_>| drop(turn);
        let answer = self.lock_waits.run_with(&sql, values, ended).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => return round.report(some, &Err(failure)),
        };
        let (renewed, missed) = divide(round, some, renewals, &answer);
        round.report(&renewed, &Ok(LeaseState::Held));
        // They have changed since they were read, or a row other than the first is locked.
        if !missed.is_empty()
            && let Err(failure) = self.look_after(round, &missed, &answer).await
        {
            round.report(&missed, &Err(failure));
        }
    }

    /// The turn of the only statement that may wait for the rows of a key.
    fn turn(&self, key: &LockKey) -> Option<OnDrop<impl FnMut() + Send + 'static + use<>>> {
        let (keys, key) = (Arc::clone(&self.waiting_keys), key.clone());
        let is_free = keys.lock().insert(key.clone());
        let end = move || {
            keys.lock().remove(&key);
        };
        is_free.then(|| OnDrop(end))
    }

    /// Runs a statement for several rows; repeats it after a conflict with another transaction, with no
    /// connection during the backoff.
    async fn many(&self, many: &Many, rows: Vec<Vec<SqlValue>>) -> Result<QueryResult, SqlFailure> {
        let mut again = WriteBackoff::urgent(self.timeout);
        let (sql, values) = many.with(&rows);
        loop {
            match self.renewals.run(&sql, values.clone()).await {
                // The pool has already repeated one that is prepared.
                Err(failure)
                    if failure.class() == Some(ErrorClass::Conflict) && !sql.is_prepared =>
                {
                    again.wait(&self.engine).await?;
                }
                answered => return answered,
            }
        }
    }
}

fn rows(round: &RenewalRound<'_>, some: &[usize]) -> Vec<Vec<SqlValue>> {
    let row = |at: &usize| {
        let due = &round.due[*at];
        let mut row = on(&due.key, due.id);
        row.push(SqlValue::from(whole_micros(due.ttl)));
        row.push(SqlValue::from(u64::from(due.rule != TtlRule::Exactly)));
        row
    };
    some.iter().map(row).collect()
}

/// Splits leases into those that a statement has certainly renewed, and the others.
fn divide(
    round: &RenewalRound<'_>,
    some: &[usize],
    renewals: &RenewalStatements,
    answer: &QueryResult,
) -> (Vec<usize>, Vec<usize>) {
    if answer.affected == renewals.counted(some.len()) {
        return (some.to_vec(), Vec::new());
    }
    let named: HashSet<_> = answer
        .rows
        .iter()
        .filter_map(|row| row[0].bytes())
        .collect();
    let is_named = |at: &usize| named.contains(&round.due[*at].id.as_bytes()[..]);
    some.iter().copied().partition(is_named)
}

/// Whether a lease lasts for its ttl from a statement on. MySQL does not name the renewed leases, but
/// returns the time of the renewal.
fn is_renewed(lock: &LockRows, id: LeaseId, ttl: Duration, answer: &QueryResult) -> bool {
    let end = answer.last_id.saturating_add(whole_micros(ttl));
    answer.last_id > 0 && lock.lasts_until(id, codec::moment(end))
}

/// Max leases of one statement, equal to those that SQLite renews in one transaction.
const MAX_BATCH: usize = 256;
