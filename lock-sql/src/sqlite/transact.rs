//! The transactions of a [`WriteQueue`].

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use polylock_core::LockKey;

use super::connection::FileConnection;
use super::open_files;
use super::rows::{StoredRow, TableInfo};
use super::write_queue::{Batch, Operands, QueuedWrite, WriteQueue, is_busy};
use crate::error::{SqlCause, SqlFailure};
use crate::table::{LoadedLocks, purge};

impl WriteQueue {
    /// Executes all of `batch` or nothing; requests without callers are dropped from it.
    ///
    /// Returns a connection only outside of a transaction. If it is dropped before `committing`, nothing
    /// was done; after that, the outcome is unknown.
    pub(super) async fn transact(
        &self,
        connection: &mut Option<FileConnection>,
        batch: &mut Batch,
        committing: &AtomicBool,
    ) -> Result<(), SqlFailure> {
        let mut open = match connection.take() {
            Some(open) => open,
            None => self.open().await?,
        };
        let done = self.run_on(&mut open, batch, committing).await;
        match &done {
            Ok(()) => *connection = Some(open),
            // No transaction has begun.
            Err(failure) if is_busy(failure) => *connection = Some(open),
            Err(failure) => self.end_if_replaced(&failure.cause, open.epoch),
        }
        done
    }

    /// Ends the leases of an epoch if its files are gone.
    fn end_if_replaced(&self, cause: &SqlCause, epoch: u64) {
        if matches!(cause, SqlCause::Replaced { .. }) {
            self.local.held.end(epoch);
            open_files::close_replaced(&self.place.path);
        }
    }

    async fn open(&self) -> Result<FileConnection, SqlCause> {
        // Before the file is opened: if the file is replaced meanwhile, its leases are lost.
        let epoch = self.local.held.epoch();
        let id = self.engine.lease_id();
        let opened = FileConnection::open(&self.place, self.durability, epoch, id).await;
        let mut open = opened.inspect_err(|cause| self.end_if_replaced(cause, epoch))?;
        if self.place.is_another(open.files.database()) {
            // It may have been replaced while no client had it open.
            self.local.held.end(epoch);
            open.epoch = self.local.held.epoch();
        }
        Ok(open)
    }

    async fn run_on(
        &self,
        open: &mut FileConnection,
        batch: &mut Batch,
        committing: &AtomicBool,
    ) -> Result<(), SqlFailure> {
        if let [work] = batch.as_slice()
            && let Operands::Listed(prefix) = &work.rows
        {
            let (rows, unreadable) = open.list(prefix).await?;
            let mut locks = LoadedLocks::new(self.clocks.now(0));
            let unreadable = unreadable.iter().map(|key| LockKey::from_stored(key));
            locks.unreadable = unreadable.filter_map(Result::ok).collect();
            self.fill(&mut locks, rows);
            return Ok(self.apply(open, batch, &mut locks)?);
        }
        let (keys, writes) = (keys_of(batch), batch.iter().any(QueuedWrite::writes));
        let keys: Vec<_> = keys.iter().map(LockKey::as_bytes).collect();
        let (table, rows) = open.load(&keys, writes).await?;
        // The clock is read here, under the write lock: see `ReadContext`.
        let mut locks = LoadedLocks::new(self.clocks.now(table.floor));
        self.fill(&mut locks, rows);
        self.apply(open, batch, &mut locks)?;
        if writes {
            let stored = self.store(open, &locks, table, committing).await;
            return stored.map_err(|cause| SqlFailure {
                cause,
                outcome_unknown: true,
            });
        }
        Ok(())
    }

    /// Puts rows to those of their keys.
    fn fill(&self, locks: &mut LoadedLocks, rows: Vec<StoredRow>) {
        for (key, mut row) in rows {
            // A name that is not a key cannot be locked either.
            if let Ok(key) = LockKey::from_stored(&key) {
                self.clocks.judge(&mut row, &locks.ctx);
                locks.rows_of(&key).load(row);
            }
        }
    }

    fn apply(
        &self,
        open: &FileConnection,
        batch: &mut Batch,
        locks: &mut LoadedLocks,
    ) -> Result<(), SqlCause> {
        // A caller that gives up from here on undoes its request.
        batch.retain(QueuedWrite::is_wanted);
        batch.iter_mut().for_each(|work| work.apply(locks));
        open.files.check()
    }

    async fn store(
        &self,
        open: &mut FileConnection,
        locks: &LoadedLocks,
        mut table: TableInfo,
        committing: &AtomicBool,
    ) -> Result<(), SqlCause> {
        let changed: Vec<_> = locks.changed().collect();
        if changed.is_empty() {
            return open.rollback().await;
        }
        let purged = self.purge(open, locks, &mut table).await?;
        let table = purged.is_some().then_some(&table);
        let deleted = purged.unwrap_or_default();
        committing.store(true, Ordering::Relaxed);
        open.commit(&changed, table, &deleted).await?;
        // A file that replaced this one before the commit does not have the changes.
        open.files.check()
    }

    /// Checks some rows each time the table has grown by a few, and selects those to delete.
    async fn purge(
        &self,
        open: &mut FileConnection,
        locks: &LoadedLocks,
        table: &mut TableInfo,
    ) -> Result<Option<Vec<StoredRow>>, SqlCause> {
        let grown = u32::try_from(locks.grown()).unwrap_or(u32::MAX);
        let made = self.made.fetch_add(grown, Ordering::Relaxed);
        if made / PURGE_EVERY == made.wrapping_add(grown) / PURGE_EVERY {
            return Ok(None);
        }
        let mut rows = open.scan(&table.purged_to, PURGE_ROWS).await?;
        for (_, row) in &mut rows {
            self.clocks.judge(row, &locks.ctx);
        }
        let is_end = rows.len() < PURGE_ROWS as usize;
        let plan = purge(&rows, is_end, &locks.ctx, self.retention);
        table.floor = table.floor.max(plan.floor);
        table.purged_to = match rows.get(plan.passed.saturating_sub(1)) {
            Some((key, row)) if !is_end => (key.clone(), row.slot),
            _ => (Vec::new(), 0),
        };
        let deleted = plan.deleted.into_iter().map(|at| rows[at].clone());
        // What is changed in this transaction is not idle.
        Ok(Some(deleted.filter(|(key, _)| !locks.has(key)).collect()))
    }
}

/// The growth of the table, in locks, between two rounds. A purge passes the whole table while it grows
/// by an eighth, and no index has to mark idle rows.
const PURGE_EVERY: u32 = 8;
const PURGE_ROWS: u32 = 64;

/// The keys of operations that share a transaction.
fn keys_of(batch: &Batch) -> BTreeSet<LockKey> {
    let keys = batch.iter().filter_map(|work| match &work.rows {
        Operands::Changed(key) | Operands::Read(key) => Some(key),
        Operands::Table => None,
        // Otherwise a lock could be granted that was not checked.
        Operands::Listed(_) => panic!("BUG: a list shares no transaction"),
    });
    keys.cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn work(rows: Operands) -> QueuedWrite {
        QueuedWrite::new(rows, Duration::ZERO, |_: &mut LoadedLocks| ()).0
    }

    #[test]
    #[should_panic(expected = "a list shares no transaction")]
    fn a_list_in_company_grants_nothing() {
        let key = Operands::Changed(LockKey::new("k").unwrap());
        drop(keys_of(&vec![
            work(key),
            work(Operands::Listed(String::new())),
        ]));
    }
}
