use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{LockEvent, LockInfo};
use crate::error::Result;
use crate::key::LockKey;
use crate::token::FencingToken;

/// Watches locks by looking five times a second at what is held. For backends that cannot push.
///
/// What is held at the first look is no event. A look that fails later shows nothing; the next one may
/// see more.
///
/// # Errors
///
/// Those of the first look.
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
    let mut seen = Seen::default();
    seen.events(look().await?);
    let (out, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        while tokio::time::timeout(POLL_INTERVAL, out.closed())
            .await
            .is_err()
        {
            let Ok(held) = look().await else { continue };
            for event in seen.events(held) {
                if out.send(event).await.is_err() {
                    return;
                }
            }
        }
    });
    Ok(receiver)
}

/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The locks of the last look, each with its largest token.
#[derive(Default)]
struct Seen(BTreeMap<LockKey, Option<FencingToken>>);

impl Seen {
    /// What happened since the last look.
    fn events(&mut self, held: Vec<LockInfo>) -> Vec<LockEvent> {
        let newest = |info: &LockInfo| info.holders.iter().filter_map(|holder| holder.token).max();
        let now: BTreeMap<_, _> = held.iter().map(|i| (i.key.clone(), newest(i))).collect();
        let gone = self.0.keys().filter(|key| !now.contains_key(*key));
        let mut events: Vec<_> = gone.cloned().map(LockEvent::Free).collect();
        let is_new = |info: &LockInfo| {
            self.0
                .get(&info.key)
                .is_none_or(|last| *last < newest(info))
        };
        events.extend(held.into_iter().filter(is_new).map(LockEvent::Acquired));
        self.0 = now;
        events
    }
}

#[cfg(test)]
mod tests {
    use crate::admin::HolderInfo;
    use crate::label::Label;
    use crate::mode::Mode;

    use super::*;

    fn held(key: &str, tokens: &[u64]) -> LockInfo {
        let holder = |token: &u64| {
            let mut holder = HolderInfo::new(Label::of_this_process());
            holder.token = Some(FencingToken::new(*token));
            holder
        };
        let key = LockKey::new(key).unwrap();
        LockInfo::new(key, Mode::Shared, tokens.iter().map(holder).collect())
    }

    fn shown(events: &[LockEvent]) -> Vec<String> {
        let show = |event: &LockEvent| match event {
            LockEvent::Acquired(info) => format!("+{}", info.key),
            LockEvent::Free(key) => format!("-{key}"),
        };
        events.iter().map(show).collect()
    }

    #[test]
    fn a_watch_sees_new_holders_and_locks_that_nobody_holds() {
        let mut seen = Seen::default();
        assert_eq!(
            shown(&seen.events(vec![held("a", &[1]), held("b", &[2])])),
            ["+a", "+b"]
        );
        assert_eq!(
            shown(&seen.events(vec![held("a", &[1]), held("b", &[2])])),
            [""; 0]
        );
        assert_eq!(shown(&seen.events(vec![held("b", &[2, 3])])), ["-a", "+b"]);
        assert_eq!(shown(&seen.events(vec![held("b", &[3])])), [""; 0]);
        assert_eq!(shown(&seen.events(vec![held("b", &[4])])), ["+b"]);
        assert_eq!(shown(&seen.events(vec![])), ["-b"]);
    }
}
