//! Why a session ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polylock_core::engine::LeaseId;
use polylock_core::{LeaseControl, LockKey, LostReason};
use tokio::time::timeout;

use super::args::Args;
use super::context::SessionContext;
use crate::wire::{Sql, SqlValue};

/// The holders of a session that has ended; notified at the latest when this is dropped.
pub(super) struct LossReport(pub(super) Vec<(LeaseId, LockKey, LeaseControl)>);

impl LossReport {
    /// Notifies them that they have lost their locks. Their records say whether a lock was broken,
    /// if the server is reachable.
    ///
    /// `keeps_locks` says that the connection is open, so that nobody else is granted the locks meanwhile.
    pub(super) async fn tell(self, context: &SessionContext, keeps_locks: bool) {
        let within = match keeps_locks {
            true => REASON_TIMEOUT,
            false => LATE_REASON_TIMEOUT,
        };
        let keys = self.0.iter().map(|(_, key, _)| key);
        let Ok(broken) = timeout(within, broken_among(context, keys)).await else {
            tracing::debug!("the server does not say why a session ended");
            return;
        };
        for (id, _, control) in &self.0 {
            if broken.contains(&id.as_bytes()[..]) {
                control.lose(LostReason::Broken);
            }
        }
    }
}

/// Whether an administrator broke the lock of this holder, as far as the server says.
pub(super) async fn is_broken(context: &SessionContext, id: LeaseId, key: &LockKey) -> bool {
    let broken = timeout(MARK_TIMEOUT, broken_among(context, [key])).await;
    broken.is_ok_and(|broken| broken.contains(&id.as_bytes()[..]))
}

/// The ids of the holders whose locks were broken, as far as the server says. One statement for all keys,
/// because the server may already have granted the locks to others.
async fn broken_among(
    context: &SessionContext,
    keys: impl IntoIterator<Item = &LockKey>,
) -> HashSet<Vec<u8>> {
    let row_key = |key: &LockKey| context.args(key).values()[Args::ROW_KEY - 1].clone();
    let keys = keys.into_iter().map(row_key);
    let Some((sql, keys)) = question(&context.statements.broken, keys) else {
        return HashSet::new();
    };
    let answer = context.control_pool.run(&sql, keys).await;
    let rows = answer.map_or_else(|_| Vec::new(), |answer| answer.rows);
    let broken = rows.iter().filter_map(|row| row.first()?.bytes());
    // Of one key all ids, one after the other.
    broken
        .flat_map(|ids| ids.chunks(ID_LEN).map(<[u8]>::to_vec))
        .collect()
}

/// Notifies the remaining holders even if the runtime ends. Already notified holders keep their reason.
impl Drop for LossReport {
    fn drop(&mut self) {
        for (_, _, control) in &self.0 {
            control.lose(LostReason::SessionEnded);
        }
    }
}

/// The query for broken locks, with its values, for at most [`MAX_ASKED`] keys; `None` without keys.
fn question(
    broken: &str,
    keys: impl Iterator<Item = SqlValue>,
) -> Option<(Arc<Sql>, Vec<SqlValue>)> {
    let keys: Vec<_> = keys.take(MAX_ASKED).collect();
    if keys.is_empty() {
        return None;
    }
    let numbers: Vec<_> = (1..=keys.len()).map(|n| format!("{{{n}}}")).collect();
    let sql = format!("{broken} ({})", numbers.join(", "));
    Some((Sql::new(sql), keys))
}

pub(super) const ID_LEN: usize = 16;

/// About how many locks it asks: the statement is built before any holder is notified.
const MAX_ASKED: usize = 1_000;

/// A session that is over may have ended with the server, and its holders must know.
const REASON_TIMEOUT: Duration = Duration::from_millis(250);
/// Others may have the locks by now.
const LATE_REASON_TIMEOUT: Duration = Duration::from_millis(100);
/// The caller of a release waits for it, and has an unknown outcome otherwise.
const MARK_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn unix_now() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statement is built before any holder is notified, so its length is limited.
    #[test]
    fn the_reason_is_asked_for_a_thousand_locks_at_most() {
        for (held, asked) in [(1, 1), (1_000, 1_000), (1_001, 1_000), (3_000, 1_000)] {
            let keys = (0..held).map(|_| SqlValue::Null);
            let (_, values) = question("IN", keys).unwrap();
            assert_eq!(values.len(), asked, "of {held}");
        }
        assert!(question("IN", std::iter::empty()).is_none());
    }
}
