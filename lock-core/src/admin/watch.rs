use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{LockEvent, LockInfo};
use crate::error::{Error, Result};
use crate::key::LockKey;

/// Watches locks by polling the held locks five times a second. For backends that cannot push.
///
/// Locks held at the first poll are no events. A later poll that fails reports nothing; the next one
/// may report more. A warning is logged when polls have failed for 5 s.
///
/// # Errors
///
/// Those of the first poll.
///
/// # Panics
///
/// Outside a tokio runtime.
///
/// # Cancel safety
///
/// Dropped before it is done, it watches nothing.
pub async fn watch_by_polling<L, F>(look: L) -> Result<mpsc::Receiver<LockEvent>>
where
    L: Fn() -> F + Send + 'static,
    F: Future<Output = Result<Vec<LockInfo>>> + Send,
{
    watch_holders_by_polling(move || {
        let held = look();
        async move {
            let held = held.await?.into_iter();
            let marked = |info: LockInfo| {
                let tokens = info.holders.iter().filter_map(|holder| holder.token);
                let tokens: BTreeSet<_> = tokens.collect();
                (info, tokens)
            };
            Ok(held.map(marked).collect())
        }
    })
    .await
}

/// The same where tokens do not identify holders: `look` returns each lock with the marks of its
/// holders. A mark that was not in the last poll is a new holder.
///
/// # Errors
///
/// Those of the first poll.
///
/// # Panics
///
/// Outside a tokio runtime.
///
/// # Cancel safety
///
/// Dropped before it is done, it watches nothing.
pub async fn watch_holders_by_polling<L, F, H>(look: L) -> Result<mpsc::Receiver<LockEvent>>
where
    L: Fn() -> F + Send + 'static,
    F: Future<Output = Result<Vec<(LockInfo, BTreeSet<H>)>>> + Send,
    H: Clone + Ord + Send + 'static,
{
    let mut seen = BTreeMap::new();
    events(&mut seen, look().await?);
    let (out, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut outage = PollOutage::default();
        while tokio::time::timeout(POLL_INTERVAL, out.closed())
            .await
            .is_err()
        {
            let held = match look().await {
                Ok(held) => held,
                Err(error) => {
                    outage.failed(&error);
                    continue;
                }
            };
            outage.is_over();
            for event in events(&mut seen, held) {
                if out.send(event).await.is_err() {
                    return;
                }
            }
        }
    });
    Ok(receiver)
}

/// Polls that have failed one after the other: the watch sees nothing, and its receiver cannot know.
#[derive(Default)]
struct PollOutage {
    since: Option<Instant>,
    is_logged: bool,
}

impl PollOutage {
    /// Logs one warning when this has gone on for some time.
    fn failed(&mut self, error: &Error) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if !self.is_logged && since.elapsed() >= MAX_OUTAGE {
            self.is_logged = true;
            tracing::warn!(%error, "a watch does not see the locks: its polls fail");
        }
    }

    fn is_over(&mut self) {
        if std::mem::take(self).is_logged {
            tracing::debug!("a watch sees the locks again");
        }
    }
}

/// How long polls may fail before a warning.
const MAX_OUTAGE: Duration = Duration::from_secs(5);

/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The events since the last poll, which saw these holders.
fn events<H: Clone + Ord>(
    seen: &mut BTreeMap<LockKey, BTreeSet<H>>,
    held: Vec<(LockInfo, BTreeSet<H>)>,
) -> Vec<LockEvent> {
    let now = held
        .iter()
        .map(|(info, holders)| (info.key.clone(), holders.clone()));
    let last = std::mem::replace(seen, now.collect());
    let gone = last.keys().filter(|key| !seen.contains_key(*key));
    let mut events: Vec<_> = gone.cloned().map(LockEvent::Free).collect();
    let is_new = |(info, holders): &(LockInfo, BTreeSet<H>)| {
        let last = last.get(&info.key);
        last.is_none_or(|last| !holders.is_subset(last))
    };
    let new = held.into_iter().filter(is_new);
    events.extend(new.map(|(info, _)| LockEvent::Acquired(info)));
    events
}

#[cfg(test)]
mod tests {
    use crate::mode::Mode;

    use super::*;

    /// Keys and their holders.
    type Held = &'static [(&'static str, &'static [u64])];

    #[test]
    fn a_watch_sees_new_holders_and_free_locks() {
        let mut seen = BTreeMap::new();
        // What is held; what is new of it (+), and what is free (-).
        let steps: [(Held, &str); 7] = [
            (&[("a", &[1]), ("b", &[2])], "+a +b"),
            (&[("a", &[1]), ("b", &[2])], ""),
            (&[("b", &[2, 3])], "-a +b"),
            (&[("b", &[3])], ""),
            (&[("b", &[4])], "+b"),
            (&[("b", &[1, 2])], "+b"),
            (&[], "-b"),
        ];
        for (held, expected) in steps {
            let held = held.iter().map(|(key, holders)| {
                let info = LockInfo::new(LockKey::new(*key).unwrap(), Mode::Shared, Vec::new());
                (info, holders.iter().copied().collect())
            });
            let shown = events(&mut seen, held.collect()).into_iter();
            let shown = shown.map(|event| match event {
                LockEvent::Acquired(info) => format!("+{}", info.key),
                LockEvent::Free(key) => format!("-{key}"),
            });
            assert_eq!(shown.collect::<Vec<_>>().join(" "), expected);
        }
    }
}
