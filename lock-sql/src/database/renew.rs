//! Renewing leases, in as few statements as they fit in.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use polylock_core::engine::LeaseId;
use polylock_core::{LeaseState, LockKey, LostReason, RenewalRequest, TtlRule};

use super::DatabaseStore;
use super::codec::{self, Stored, whole_micros};
use super::row::Backoff;
use super::statements::Many;
use crate::error::Failure;
use crate::pool::Pool;
use crate::table::Record;
use crate::wire::{Answer, Class, Value};

type State = Result<LeaseState, Failure>;

impl DatabaseStore {
    /// Exclusive leases are renewed by one statement. The others, and those that it does not find,
    /// are read and written back.
    pub(super) async fn renew_all(&self, due: &[RenewalRequest]) -> Vec<State> {
        let mut order: Vec<_> = (0..due.len()).collect();
        // Two statements that lock the same rows in one order are not in each other's way.
        order.sort_by(|a, b| due[*a].key.cmp(&due[*b].key));
        let (mut others, alone): (Vec<_>, Vec<_>) = order
            .into_iter()
            .partition(|at| self.shared_leases.has(due[*at].id));
        let mut states: Vec<State> = vec![Ok(LeaseState::Held); due.len()];
        for some in alone.chunks(MOST) {
            match self.renew_alone(due, some).await {
                Ok(rest) => others.extend(rest),
                Err(failure) => fail(&mut states, some, &failure),
            }
        }
        for some in others.chunks(MOST) {
            let mut rest = some.to_vec();
            let renewed = self.renew_rows(due, &mut rest, &mut states).await;
            if let Err(failure) = renewed {
                fail(&mut states, &rest, &failure);
            }
        }
        states
    }

    /// Renews exclusive leases; the rest is not known.
    async fn renew_alone(
        &self,
        due: &[RenewalRequest],
        some: &[usize],
    ) -> Result<Vec<usize>, Failure> {
        let row = |at: &usize| {
            let RenewalRequest {
                key, id, ttl, rule, ..
            } = &due[*at];
            let is_least = u64::from(*rule != TtlRule::Exactly);
            vec![
                Value::from(key.as_bytes()),
                Value::from(&id.as_bytes()[..]),
                Value::from(whole_micros(*ttl)),
                Value::from(is_least),
            ]
        };
        let rows = some.iter().map(row).collect();
        let answer = self.many(&self.renewals, &self.statements.renew, rows);
        let answer = answer.await?;
        if answer.affected == some.len() as u64 {
            return Ok(Vec::new());
        }
        // One database names those that it has renewed, the other one has only counted them.
        let renewed: HashSet<_> = answer
            .rows
            .iter()
            .filter_map(|row| row[0].bytes())
            .collect();
        let missed = |at: &usize| !renewed.contains(&due[*at].id.as_bytes()[..]);
        Ok(some.iter().copied().filter(missed).collect())
    }

    /// Renews leases of any kind, and leaves those that are not done in `rest`.
    ///
    /// A row that changes all the time does not keep others from being renewed: written rows are
    /// done, and where the database only counts them, fewer are tried at once.
    async fn renew_rows(
        &self,
        due: &[RenewalRequest],
        rest: &mut Vec<usize>,
        states: &mut [State],
    ) -> Result<(), Failure> {
        let mut again = Backoff::urgent(self.timeout);
        let mut at_once = rest.len();
        while !rest.is_empty() {
            let some = &rest[..at_once.min(rest.len())];
            let keys: BTreeSet<_> = some.iter().map(|at| &due[*at].key).collect();
            let mut found = self.load_many(&keys).await?;
            let renewed = some.iter().map(|at| (*at, renew(&mut found, &due[*at])));
            let renewed: Vec<_> = renewed.collect();
            let changed: Vec<_> = found
                .values()
                .flatten()
                .filter(|stored| stored.record.is_changed())
                .collect();
            let missed = self.store_many(&changed).await?;
            let mut done = HashSet::new();
            for (at, state) in renewed {
                if !missed.contains(&due[at].key) {
                    states[at] = state;
                    done.insert(at);
                }
            }
            self.note_sharers(&found, due, &done);
            rest.retain(|at| !done.contains(at));
            if missed.is_empty() {
                at_once *= 2;
            } else {
                at_once = (at_once / 2).max(1);
                again.wait(&self.engine).await?;
            }
        }
        Ok(())
    }

    async fn load_many(&self, keys: &BTreeSet<&LockKey>) -> Result<Found, Failure> {
        let rows = keys.iter().map(|key| vec![Value::from(key.as_bytes())]);
        let load = &self.statements.load_many;
        let answer = self.many(&self.renewals, load, rows.collect()).await?;
        let found = codec::read(&answer.rows).into_iter();
        let found = found.map(|(key, stored)| {
            let stored = stored.ok_or_else(|| self.malformed(&key));
            (key, stored)
        });
        // A held lock has its first row.
        let is_there = |stored: &Result<Stored, Failure>| {
            stored.as_ref().is_ok_and(|stored| stored.version.is_some()) || stored.is_err()
        };
        Ok(found.filter(|(_, stored)| is_there(stored)).collect())
    }

    /// Writes records back, and returns the keys of those that may have changed since they were
    /// read.
    async fn store_many(&self, changed: &[&Stored]) -> Result<HashSet<LockKey>, Failure> {
        if changed.is_empty() {
            return Ok(HashSet::new());
        }
        let rows: Vec<_> = changed
            .iter()
            .flat_map(|stored| codec::write(stored))
            .collect();
        let (store, count) = (&self.statements.store, rows.len());
        let answer = self.many(&self.renewals, store, rows).await?;
        if answer.affected == store.counted(count) {
            return Ok(HashSet::new());
        }
        // As for those that are alone: named, or counted.
        let written = answer.rows.iter().filter_map(|row| row[0].bytes());
        let written: HashSet<_> = written.collect();
        let missed = changed.iter().map(|stored| &stored.key);
        let missed = missed.filter(|key| !written.contains(key.as_bytes()));
        Ok(missed.cloned().collect())
    }

    /// Remembers the shared holders.
    fn note_sharers(&self, found: &Found, due: &[RenewalRequest], done: &HashSet<usize>) {
        let now = self.engine.now();
        for RenewalRequest { key, id, .. } in done.iter().map(|at| &due[*at]) {
            if let Some(Ok(stored)) = found.get(key)
                && is_sharer(&stored.record, *id)
            {
                self.shared_leases.note(*id, now);
            }
        }
    }

    /// Runs a statement for several rows, again if another transaction is in its way.
    async fn many(
        &self,
        pool: &Arc<Pool>,
        many: &Many,
        rows: Vec<Vec<Value>>,
    ) -> Result<Answer, Failure> {
        let mut again = Backoff::urgent(self.timeout);
        let (sql, values) = many.with(&rows);
        if many.is_prepared() {
            return pool.statement(&sql, values).await;
        }
        loop {
            match pool.message(&sql, values.clone()).await {
                Err(failure) if failure.class() == Some(Class::Conflict) => {
                    again.wait(&self.engine).await?;
                }
                answered => return answered,
            }
        }
    }
}

/// The rows of keys; a key without one is free.
type Found = BTreeMap<LockKey, Result<Stored, Failure>>;

fn renew(found: &mut Found, request: &RenewalRequest) -> State {
    match found.get_mut(&request.key) {
        Some(Ok(stored)) => {
            let ctx = stored.ctx;
            Ok(stored.record.renew(request, &ctx))
        }
        Some(Err(failure)) => Err(failure.clone()),
        None => Ok(LeaseState::Lost(LostReason::Stolen)),
    }
}

fn is_sharer(record: &Record, id: LeaseId) -> bool {
    let mut rows = record.rows();
    rows.any(|row| row.slot > 0 && row.is_held_by(id))
}

fn fail(states: &mut [State], some: &[usize], failure: &Failure) {
    for at in some {
        states[*at] = Err(failure.clone());
    }
}

/// Most leases of one statement, as many as SQLite renews in one transaction.
const MOST: usize = 256;
