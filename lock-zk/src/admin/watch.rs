use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lock_core::LockKey;
use lock_core::admin::{LockEvent, LockInfo};
use tokio::sync::mpsc;

use super::seen::{Depth, Seen};
use crate::error::Failure;
use crate::lock::Client;

impl Client {
    /// Polls held locks five times a second. A recursive watch would be faster, and load this
    /// client with every contender that comes and goes. Events do not name waiters.
    pub(super) async fn watch_by_polling(
        &self,
        prefix: &str,
    ) -> Result<mpsc::Receiver<LockEvent>, Failure> {
        let mut last = Holders::default();
        last.events(self.held(prefix, Depth::Holders).await?);
        let (out, receiver) = mpsc::channel(64);
        let (client, prefix) = (self.clone(), prefix.to_owned());
        tokio::spawn(async move {
            while tokio::time::timeout(POLL_INTERVAL, out.closed())
                .await
                .is_err()
            {
                let Ok(held) = client.held(&prefix, Depth::Holders).await else {
                    continue;
                };
                for event in last.events(held) {
                    if out.send(event).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(receiver)
    }
}

/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The holders of the last look, each with its last write: a hand-over that needs one makes a new
/// holder, and the others are not seen.
#[derive(Debug, Default)]
struct Holders(BTreeMap<LockKey, BTreeSet<Holder>>);

type Holder = (Arc<str>, i64);

impl Holders {
    /// What happened since the last look.
    fn events(&mut self, held: Vec<(LockKey, Seen)>) -> Vec<LockEvent> {
        let now = held.into_iter().map(|(key, seen)| {
            let holders = seen.holders().iter();
            let holders = holders.map(|entry| (entry.name().into(), entry.version()));
            (seen.info(key), holders.collect())
        });
        self.exchange(now.collect())
    }

    fn exchange(&mut self, held: Vec<(LockInfo, BTreeSet<Holder>)>) -> Vec<LockEvent> {
        let now: BTreeMap<_, _> = held
            .iter()
            .map(|(info, holders)| (info.key.clone(), holders.clone()))
            .collect();
        let gone = self.0.keys().filter(|key| !now.contains_key(*key));
        let mut events: Vec<_> = gone.cloned().map(LockEvent::Free).collect();
        let is_new = |(info, holders): &(LockInfo, BTreeSet<Holder>)| {
            let last = self.0.get(&info.key);
            last.is_none_or(|last| !holders.is_subset(last))
        };
        let new = held.into_iter().filter(is_new);
        events.extend(new.map(|(info, _)| LockEvent::Acquired(info)));
        self.0 = now;
        events
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Mode;

    use super::*;

    fn held(key: &str, holders: &[(&str, i64)]) -> (LockInfo, BTreeSet<Holder>) {
        let info = LockInfo::new(LockKey::new(key).unwrap(), Mode::Exclusive, vec![]);
        let holders = holders.iter().map(|(name, write)| ((*name).into(), *write));
        (info, holders.collect())
    }

    fn shown(events: &[LockEvent]) -> Vec<String> {
        let show = |event: &LockEvent| match event {
            LockEvent::Acquired(info) => format!("+{}", info.key),
            LockEvent::Free(key) => format!("-{key}"),
            other => panic!("{other}"),
        };
        events.iter().map(show).collect()
    }

    #[test]
    fn a_watch_sees_new_holders_hand_overs_and_locks_that_nobody_holds() {
        let mut last = Holders::default();
        let steps: [(Vec<_>, &[&str]); 6] = [
            (vec![held("a", &[("x", 1)])], &["+a"]),
            (vec![held("a", &[("x", 1)])], &[]),
            (vec![held("a", &[("x", 9)])], &["+a"]),
            (vec![held("a", &[("y", 5), ("z", 6)])], &["+a"]),
            (vec![held("a", &[("y", 5)])], &[]),
            (vec![], &["-a"]),
        ];
        for (held, expected) in steps {
            assert_eq!(shown(&last.exchange(held)), expected);
        }
    }
}
