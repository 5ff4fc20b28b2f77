use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::invariant::Invariant;
use crate::judge::judge;
use crate::report::Report;
use crate::timeline::{Entry, Event, Who};

/// One scheme, and what it is provoked by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) rung: &'static str,
    pub(crate) scheme: &'static str,
    pub(crate) how: &'static str,
    pub(crate) provocation: &'static str,
    /// What is known to break.
    pub(crate) breaks: &'static [Invariant],
}

/// Writes down what the clients do, and is what their lock protects.
#[derive(Debug)]
pub(crate) struct Scene {
    script: Script,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    /// The largest that came with a write.
    newest_token: u64,
}

impl Scene {
    pub(crate) fn begin(script: Script) -> Self {
        Self {
            script,
            begun: Instant::now(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn notes(&self, who: Who, text: impl Into<String>) {
        self.add(who, Event::Notes(text.into()));
    }

    pub(crate) fn enters(&self, who: Who, how: impl Into<String>) {
        self.add(who, Event::Enters(how.into()));
    }

    pub(crate) fn leaves(&self, who: Who) {
        self.add(who, Event::Leaves);
    }

    pub(crate) fn dies(&self, who: Who) {
        self.add(who, Event::Dies);
    }

    pub(crate) fn is_told(&self, who: Who, why: impl Into<String>) {
        self.add(who, Event::IsTold(why.into()));
    }

    /// The same for a lock that says beforehand when it is gone.
    pub(crate) fn is_told_at(&self, when: Instant, who: Who, why: impl Into<String>) {
        let at = when.saturating_duration_since(self.begun);
        self.add_at(at, who, Event::IsTold(why.into()));
    }

    pub(crate) fn releases(&self, who: Who, removed: bool) {
        self.add(who, Event::Releases { removed });
    }

    pub(crate) fn overwrites(&self, who: Who, whose: Who) {
        self.add(who, Event::Overwrites(whose));
    }

    pub(crate) fn is_stuck(&self, who: Who, why: impl Into<String>) {
        self.add(who, Event::IsStuck(why.into()));
    }

    /// A write to what the lock protects. It refuses a token that is smaller than one it has seen,
    /// and cannot tell writes without a token apart.
    pub(crate) fn writes(&self, who: Who, token: Option<u64>) {
        let mut state = self.state();
        let accepted = token.is_none_or(|token| token >= state.newest_token);
        state.newest_token = token.unwrap_or_default().max(state.newest_token);
        drop(state);
        self.add(who, Event::Writes { token, accepted });
    }

    pub(crate) fn report(self) -> Report {
        let state = self.state.into_inner();
        let mut entries = state.unwrap_or_else(PoisonError::into_inner).entries;
        entries.sort_by_key(|entry| entry.at);
        let findings = judge(&entries);
        Report {
            script: self.script,
            entries,
            findings,
        }
    }

    fn add(&self, who: Who, event: Event) {
        self.add_at(self.begun.elapsed(), who, event);
    }

    fn add_at(&self, at: Duration, who: Who, event: Event) {
        self.state().entries.push(Entry { at, who, event });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
