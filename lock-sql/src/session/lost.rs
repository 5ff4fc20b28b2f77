//! Why a session ended.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::engine::LeaseId;
use lock_core::{LeaseControl, LockKey, LostReason};
use tokio::time::timeout;

use super::terms::Terms;

/// Tells the holders of a session that is over that they have lost their locks.
///
/// Whether somebody broke them is in their records, if the server is there to ask.
pub(super) async fn tell(terms: Arc<Terms>, held: Vec<(LeaseId, LockKey, LeaseControl)>) {
    let asked = timeout(ASKING, async {
        let mut told = 0;
        for (id, key, control) in &held {
            let reason = match is_broken(&terms, *id, key).await {
                Some(true) => LostReason::Broken,
                Some(false) => LostReason::SessionEnded,
                None => break,
            };
            control.lose(reason);
            told += 1;
        }
        told
    });
    if asked.await.is_ok_and(|told| told == held.len()) {
        return;
    }
    // Who has been told already stays with that.
    for (_, _, control) in held {
        control.lose(LostReason::SessionEnded);
    }
}

/// `None` if there is no answer.
async fn is_broken(terms: &Terms, id: LeaseId, key: &LockKey) -> Option<bool> {
    let args = terms.args(key);
    let record = terms
        .clerk
        .statement(&terms.texts.inspect, args.into_vec())
        .await;
    let broken = record.ok()?.rows.first()?.last()?.bytes()?.to_vec();
    // The ids of all whose lock was broken, one after the other.
    Some(broken.chunks(ID_LEN).any(|broken| broken == id.as_bytes()))
}

pub(super) const ID_LEN: usize = 16;

/// A session that is over may have ended with the server.
const ASKING: Duration = Duration::from_millis(250);

pub(super) fn hex(id: LeaseId) -> String {
    id.as_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

pub(super) fn unix_now() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}
