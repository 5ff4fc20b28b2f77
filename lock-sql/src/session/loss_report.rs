//! Why a session ended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polylock_core::engine::LeaseId;
use polylock_core::{LeaseControl, LockKey, LostReason};
use tokio::time::timeout;

use super::context::SessionContext;

/// The holders of a session that has ended; notified at the latest when this is dropped.
pub(super) struct LossReport(Vec<(LeaseId, LockKey, LeaseControl)>);

impl LossReport {
    pub(super) fn new(held: Vec<(LeaseId, LockKey, LeaseControl)>) -> Self {
        Self(held)
    }

    /// Notifies them that they have lost their locks. Their records say whether a lock was broken,
    /// if the server is reachable.
    pub(super) async fn tell(self, context: &SessionContext) {
        let asked = timeout(REASON_TIMEOUT, async {
            for (id, key, control) in &self.0 {
                let reason = match is_broken(context, *id, key).await {
                    Some(true) => LostReason::Broken,
                    Some(false) => LostReason::SessionEnded,
                    None => break,
                };
                control.lose(reason);
            }
        });
        if asked.await.is_err() {
            tracing::debug!("the server does not say why a session ended");
        }
    }
}

/// Notifies the remaining holders even if the runtime ends. Already notified holders keep their reason.
impl Drop for LossReport {
    fn drop(&mut self) {
        for (_, _, control) in &self.0 {
            control.lose(LostReason::SessionEnded);
        }
    }
}

/// `None` if there is no answer.
async fn is_broken(context: &SessionContext, id: LeaseId, key: &LockKey) -> Option<bool> {
    let args = context.args(key);
    let record = context
        .control_pool
        .statement(&context.statements.inspect, args.into_vec())
        .await;
    let record = record.ok()?;
    // The ids of all whose lock was broken, one after the other.
    let broken = record.rows.first().and_then(|row| row.last()?.bytes());
    let mut broken = broken.unwrap_or_default().chunks(ID_LEN);
    Some(broken.any(|broken| broken == id.as_bytes()))
}

pub(super) const ID_LEN: usize = 16;

/// A session that is over may have ended with the server.
const REASON_TIMEOUT: Duration = Duration::from_millis(250);

pub(super) fn unix_now() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}
