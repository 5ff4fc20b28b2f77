//! Releasing a lock.

use polylock_core::engine::LeaseId;
use polylock_core::{LockKey, Released};

use super::{DatabaseStore, on};
use crate::error::SqlFailure;
use crate::table::{LockRows, ReadContext};
use crate::wire::{ErrorClass, QueryResult};

impl DatabaseStore {
    /// Releases a lock, on another connection if the first one has ended.
    pub(super) async fn release_or_retry(
        &self,
        key: &LockKey,
        id: LeaseId,
    ) -> Result<Released, SqlFailure> {
        let failure = match self.try_release(key, id).await {
            Err(failure) if failure.class().is_some_and(ErrorClass::ends_connection) => failure,
            answered => return answered,
        };
        // The connection was probably closed while idle. Otherwise, the order of the requests is
        // unknown.
        match self.try_release(key, id).await {
            Ok(Released::Clean) => Ok(Released::Clean),
            _ => Err(failure),
        }
    }

    async fn try_release(&self, key: &LockKey, id: LeaseId) -> Result<Released, SqlFailure> {
        let sql = match self.shared_leases.has(id) {
            true => &self.statements.leave,
            false => &self.statements.release,
        };
        let mut values = on(key, id);
        values.extend(self.topic(key));
        let answer = self.pool.run(sql, values).await?;
        let released = match released(&answer) {
            Some(released) => released,
            None => {
                let release = |lock: &mut LockRows, ctx: &ReadContext| lock.release(id, ctx);
                self.change(key, release).await?
            }
        };
        self.shared_leases.forget(id);
        Ok(released)
    }
}

/// Whether the statement freed a lock, and whether that was in time.
fn released(answer: &QueryResult) -> Option<Released> {
    let in_time = match answer.int(0) {
        Some(in_time) => in_time == 1,
        None => (answer.affected > 0).then_some(answer.last_id == 2)?,
    };
    Some(match in_time {
        true => Released::Clean,
        false => Released::AlreadyLost,
    })
}
