//! Acquires, and reports the holder while the lock is held.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::env;
use std::future::{Future, pending};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use polylock::admin::LockInfo;
use polylock::layers::{Event, EventKind, Observer};
use polylock::{AcquireRequest, DistributedLock, ErrorKind, Label, LockKey, Wait};
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::watch;

use crate::backend::hidden_part;
use crate::child::{Signals, name};
use crate::output::{
    CommandFailure, Console, Escaped, Events, StatusLine, escaped, holder_refusing,
    holder_waited_for, holders_json, human, names, quoted,
};

/// The lock that is waited for, and the receiver of reports.
#[derive(Debug)]
pub(crate) struct LockWait<'a> {
    pub(crate) locks: &'a dyn DistributedLock,
    pub(crate) keys: &'a [LockKey],
    /// The options for all of the keys; its key stands for them.
    pub(crate) request: &'a AcquireRequest,
    /// In the background: a reader or a terminal that takes no bytes must not hold up the wait.
    pub(crate) console: &'a Console,
    pub(crate) events: &'a Events,
    /// How hints call `lockctl`, so that they ask the same backend, or both that each lock is on.
    pub(crate) programs: &'a [String],
    pub(crate) progress: &'a WaitProgress,
}

/// How far a wait has come, as the events of its locks tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitProgress(watch::Sender<WaitState>);

#[derive(Debug, Default)]
struct WaitState {
    /// The keys that this process has acquired so far: several keys are acquired one after the other, and the
    /// holder of those that come first is this process.
    acquired: BTreeSet<LockKey>,
    /// Why the server could not grant a lock when it was last asked, if it could not.
    unavailable: Option<String>,
}

impl Observer for WaitProgress {
    fn event(&self, event: &Event<'_>) {
        self.0.send_if_modified(|state| match event.kind {
            EventKind::Held => {
                state.unavailable = None;
                state.acquired.insert(event.key.clone())
            }
            EventKind::GivenUp { .. } | EventKind::Lost { .. } => state.acquired.remove(event.key),
            EventKind::Unavailable { why } => {
                state.unavailable = Some(escaped(why));
                // It comes again and again, and the next line has it.
                false
            }
            _ => false,
        });
    }
}

impl WaitProgress {
    fn has(&self, key: &LockKey) -> bool {
        self.0.borrow().acquired.contains(key)
    }

    fn why_unavailable(&self) -> Option<String> {
        self.0.borrow().unavailable.clone()
    }

    /// A holder is known, which is the reason by now.
    fn forget_unavailable(&self) {
        self.0.send_if_modified(|state| {
            state.unavailable = None;
            false
        });
    }
}

/// How the waiting ended.
#[derive(Debug)]
pub(crate) enum WaitOutcome<G> {
    Acquired(G),
    /// Another client holds the lock, and the wait has timed out; ready to print.
    Held(CommandFailure),
    /// A signal came first.
    Interrupted(Signal),
}

/// Waiting that lasts longer is worth a word.
const QUIET_WAIT: Duration = Duration::from_millis(250);

/// Longest time to look for the holder; the lock itself is not held up by that.
const LOOK: Duration = Duration::from_secs(1);

/// Longest time until the holder is looked for again.
const MAX_PAUSE: Duration = Duration::from_secs(8);

/// What is shown in turn while this process waits; the holder is asked for after each round.
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

impl LockWait<'_> {
    /// Waits for `acquiring` to give a guard, and leaves the queue when a signal comes.
    /// Cancel safety: as for `acquiring`.
    pub(crate) async fn wait_for<G>(
        &self,
        acquiring: impl Future<Output = polylock::Result<G>>,
        signals: &mut Signals,
    ) -> Result<WaitOutcome<G>, CommandFailure> {
        let began = Instant::now();
        match self.until_signal(acquiring, signals).await {
            Err(signal) => Ok(WaitOutcome::Interrupted(signal)),
            Ok(Ok(guard)) => Ok(WaitOutcome::Acquired(guard)),
            Ok(Err(error)) if error.kind() == ErrorKind::Contended => {
                let key = error.key().unwrap_or_else(|| self.next()).clone();
                Ok(WaitOutcome::Held(self.held(&key, began.elapsed()).await))
            }
            Ok(Err(error)) => {
                // One of several keys, while the others were waited for.
                self.events.tell_loss(&error);
                Err(error.into())
            }
        }
    }

    /// Waits for `acquiring`, or for a signal that comes first.
    /// Cancel safety: as for `acquiring`.
    pub(crate) async fn until_signal<T>(
        &self,
        acquiring: impl Future<Output = T>,
        signals: &mut Signals,
    ) -> Result<T, Signal> {
        // Whichever comes first drops the request, which leaves the queue.
        tokio::select! {
            biased;
            signal = signals.next_that_ends() => {
                self.console.note(format_args!(
                    "gave up waiting for {} ({})",
                    self.names(),
                    name(signal)
                ));
                Err(signal)
            }
            acquired = acquiring => Ok(acquired),
            never = self.tell(Instant::now()) => match never {},
        }
    }

    /// Reports the holder, as long as it is polled; again when there is another one.
    async fn tell(&self, began: Instant) -> Infallible {
        let mut progress = self.progress.0.subscribe();
        loop {
            progress.mark_unchanged();
            // One that comes meanwhile may have been the one that was held.
            if let Ok(changed) = tokio::time::timeout(QUIET_WAIT, progress.changed()).await {
                changed.expect("BUG: the keys that are acquired outlive the waiting");
                continue;
            }
            let holder = self.blocker().await;
            self.tell_events(holder.as_ref());
            let telling = async {
                match self.console.is_chatty() && has_status_line() {
                    true => self.spin(began, holder).await,
                    false => self.tell_lines(holder).await,
                }
            };
            tokio::select! {
                never = telling => match never {},
                changed = progress.changed() => {
                    changed.expect("BUG: the keys that are acquired outlive the waiting");
                }
            }
        }
    }

    /// One line, and another one if the holder becomes known later, or why there is none that is known.
    async fn tell_lines(&self, mut holder: Option<LockInfo>) -> Infallible {
        self.console.note(self.sentence(holder.as_ref(), None));
        let mut is_explained = self.progress.why_unavailable().is_some();
        let mut pause = LOOK;
        while holder.is_none() {
            // Not recorded yet, or the server is slow.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
            holder = self.blocker().await;
            if holder.is_some() {
                self.tell_events(holder.as_ref());
            }
            let explains = !is_explained && self.progress.why_unavailable().is_some();
            is_explained |= explains;
            if holder.is_some() || explains {
                self.console.note(self.sentence(holder.as_ref(), None));
            }
        }
        pending().await
    }

    fn tell_events(&self, holder: Option<&LockInfo>) {
        let keys: Vec<_> = self.keys.iter().map(LockKey::as_str).collect();
        let key = holder.map(|info| info.key.as_str());
        let holders = holder.map(holders_json);
        self.events.tell(
            "waiting",
            json!({ "keys": keys, "key": key, "holders": holders }),
        );
    }

    async fn spin(&self, began: Instant, mut holder: Option<LockInfo>) -> Infallible {
        // Cleared when it is dropped with this future.
        let line = StatusLine(self.console);
        let mut is_told = holder.is_some();
        loop {
            for turn in SPINNER {
                let sentence = self.sentence(holder.as_ref(), Some(began.elapsed()));
                line.show(format_args!("{turn} lockctl: {sentence}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            holder = self.blocker().await;
            if !is_told && holder.is_some() {
                self.tell_events(holder.as_ref());
                is_told = true;
            }
        }
    }

    fn sentence(&self, holder: Option<&LockInfo>, waited: Option<Duration>) -> String {
        // They are acquired one after the other, in this order.
        let keys: BTreeSet<_> = self.keys.iter().collect();
        let key = holder.map_or_else(|| self.next(), |info| &info.key);
        let place = keys.iter().position(|other| *other == key);
        let place = place.filter(|_| keys.len() > 1);
        let place = place.map(|at| format!("{} of {}", at + 1, keys.len()));
        let details: Vec<_> = place.into_iter().chain(waited.map(human)).collect();
        let mut out = format!("waiting for {}", Escaped(key.as_str()));
        if !details.is_empty() {
            out += &format!(" ({})", details.join(", "));
        }
        let Some(info) = holder else {
            let why = self.progress.why_unavailable();
            return out + &why.map(|why| format!(": {why}")).unwrap_or_default();
        };
        if let Some(first) = info.holders.first() {
            out += &format!("  held by {}", holder_waited_for(first));
        }
        if info.holders.len() > 1 {
            out += &format!(" and {} more", info.holders.len() - 1);
        }
        if let Some(ahead) = info
            .waiters
            .as_deref()
            .and_then(|w| ahead_of(w, self.request.label()))
        {
            out += &format!("   [{ahead} ahead of you]");
        }
        out
    }

    /// The failure to report when the wait is over.
    async fn held(&self, key: &LockKey, waited: Duration) -> CommandFailure {
        let name = Escaped(key.as_str());
        let waited = match self.request.wait() {
            Wait::Never => String::new(),
            _ => format!(" (waited {})", human(waited)),
        };
        let message = format!("{name} is held{waited}");
        let failure = CommandFailure::new(crate::exit::Exit::NotAcquired, message);
        let info = look(self.locks, key).await;
        let holders = info.map(|info| info.holders).unwrap_or_default();
        let failure = holders.iter().fold(failure, |failure, holder| {
            failure.with_detail("holder", holder_refusing(holder))
        });
        let key = match key.as_str() {
            key if key.starts_with('-') => format!("-- {}", quoted(key)),
            key => quoted(key),
        };
        let hint = |program: &String| {
            let hidden = hidden_part(program);
            format!("see `{program} inspect {key}`; to break it: `{program} break {key}`{hidden}")
        };
        let hints = self.programs.iter().map(hint);
        hints.fold(failure, CommandFailure::with_hint)
    }

    /// The first of the held locks.
    async fn blocker(&self) -> Option<LockInfo> {
        for key in self.left() {
            let info = look(self.locks, key).await;
            // It may have been acquired while its holder was asked for.
            if info.is_some() && !self.progress.has(key) {
                self.progress.forget_unavailable();
                return info;
            }
        }
        None
    }

    /// The keys that are waited for, in the order in which they are acquired.
    fn left(&self) -> Vec<&LockKey> {
        let left = self.keys.iter().filter(|key| !self.progress.has(key));
        let mut left: Vec<_> = left.collect();
        left.sort();
        left
    }

    fn next(&self) -> &LockKey {
        self.left().first().copied().unwrap_or(&self.keys[0])
    }

    fn names(&self) -> String {
        names(self.keys.iter().map(LockKey::as_str))
    }
}

/// Who holds a lock, if that can be learned in a moment.
/// Cancel safety: nothing is changed.
pub(crate) async fn look(locks: &dyn DistributedLock, key: &LockKey) -> Option<LockInfo> {
    let looking = locks.admin()?.inspect(key);
    tokio::time::timeout(LOOK, looking).await.ok()?.ok()?
}

/// Whether standard error is a terminal that can replace a line.
fn has_status_line() -> bool {
    stderr().is_terminal() && env::var_os("TERM").is_none_or(|kind| kind != "dumb")
}

/// How many wait before this process; `None` if it is not in the queue.
fn ahead_of(waiters: &[Label], own: &Label) -> Option<usize> {
    waiters
        .iter()
        .position(|label| (label.host(), label.pid()) == (own.host(), own.pid()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lock_testkit::locks::until;
    use polylock::DistributedLockExt as _;
    use polylock::memory::{Memory, Reachable};
    use serde_json::Value;

    use super::*;
    use crate::args::EventsTarget;

    /// The first look fails.
    #[tokio::test]
    async fn a_holder_that_becomes_known_later_is_told() {
        let store = Memory::new();
        let key = LockKey::new("k").unwrap();
        let _held = store.lock(&key).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("events");
        let events = Events::open(Some(EventsTarget::File(file.clone())), &Console::new(2)).await;
        let (events, locks) = (events.unwrap(), Arc::new(store.client()));
        let wait = LockWait {
            locks: &*locks,
            keys: std::slice::from_ref(&key),
            request: &AcquireRequest::new(key.clone()),
            console: &Console::new(2),
            events: &events,
            programs: &["lockctl".to_owned()],
            progress: &WaitProgress::default(),
        };
        let told = || -> Vec<Option<String>> {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let lines = text.lines().map(serde_json::from_str::<Value>);
            let key = |event: Value| event["key"].as_str().map(str::to_owned);
            lines.map(|event| key(event.unwrap())).collect()
        };
        store.faults().set_reachable(Reachable::Cut);
        tokio::select! {
            never = wait.tell(Instant::now()) => match never {},
            () = async {
                until("an event has no holder", async || told() == [None]).await;
                store.faults().set_reachable(Reachable::Connected);
                until("the holder is told", async || told() == [None, Some("k".to_owned())]).await;
            } => {}
        }
    }

    #[tokio::test]
    async fn a_hint_with_a_url_that_is_not_whole_says_so() {
        let store = Memory::new();
        let key = LockKey::new("k").unwrap();
        let url = "redis://app:***@cache";
        let secret = "redis-sentinel://s/m?sentinel-password=***";
        for (program, ends) in [
            ("lockctl", "`lockctl break k`"),
            (
                url,
                "`redis://app:***@cache break k`; *** hides a part of the URL, write it in full",
            ),
            (secret, "; *** hides a part of the URL, write it in full"),
        ] {
            let wait = LockWait {
                locks: &store,
                keys: std::slice::from_ref(&key),
                request: &AcquireRequest::new(key.clone()),
                console: &Console::new(2),
                events: &Events::default(),
                programs: &[program.to_owned()],
                progress: &WaitProgress::default(),
            };
            let failure = wait.held(&key, Duration::ZERO).await;
            let hint = format!("{failure:?}");
            assert!(hint.contains(&format!("{ends}\")")), "{hint}");
        }
    }

    #[test]
    fn the_place_in_the_queue_counts_those_before() {
        let label = |pid: u32| Label::decode(&format!("host=h&pid={pid}"));
        let queue = [label(1), label(2), label(3)];
        assert_eq!(ahead_of(&queue, &label(3)), Some(2));
        assert_eq!(ahead_of(&queue, &label(4)), None);
    }
}
