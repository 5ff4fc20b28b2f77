//! The locks that a command runs under.

use std::time::Duration;

use futures_util::future::select_all;
use polylock::{LockGuard, LostReason, LostSignal};
use tokio::time::Instant;

use crate::output::names;

/// The locks that a command runs under, whatever owns the guards; it ends with the first that is lost.
#[derive(Debug)]
pub(crate) struct CommandLocks<'a>(Vec<&'a LockGuard>);

impl<'a> CommandLocks<'a> {
    pub(crate) fn new(guards: impl IntoIterator<Item = &'a LockGuard>) -> Self {
        Self(guards.into_iter().collect())
    }

    pub(crate) fn guards(&self) -> impl Iterator<Item = &'a LockGuard> {
        self.0.iter().copied()
    }

    pub(crate) fn keys(&self) -> Vec<&'a str> {
        self.guards().map(|guard| guard.key().as_str()).collect()
    }

    /// The keys for people.
    pub(super) fn names(&self) -> String {
        names(self.keys())
    }

    pub(super) fn is_held(&self) -> bool {
        self.guards().all(LockGuard::is_held)
    }

    /// The first that is lost, and why.
    pub(super) fn lost_one(&self) -> Option<(&'a str, LostReason)> {
        self.guards()
            .find_map(|guard| Some((guard.key().as_str(), guard.lost().reason()?)))
    }

    /// Resolves when the first of them is lost.
    /// Cancel safety: nothing is lost; a loss is final.
    pub(crate) async fn lost(&self) -> LostReason {
        select_all(self.guards().map(|guard| guard.lost().into_future()))
            .await
            .0
    }

    /// Ready once one of them is held for at most `ahead` more, or not at all; the max hold counts.
    /// Cancel safety: nothing is lost.
    pub(super) async fn expiring(&self, ahead: Duration) {
        select_all(self.guards().map(|guard| guard.expiring(ahead))).await;
    }

    /// Time until the max hold of one of them ends; `None` without limit.
    pub(super) fn max_hold_left(&self) -> Option<Duration> {
        self.guards().filter_map(LockGuard::max_hold_left).min()
    }

    /// Time until the first of them ends unless it is renewed, zero if one is over; `None` without limit.
    pub(crate) fn valid_for(&self) -> Option<Duration> {
        let end = self.guards().filter_map(LockGuard::valid_until).min()?;
        // Read after the ends: that of a lock that is over is the time when it was asked for.
        Some(end.saturating_duration_since(Instant::now()))
    }
}

/// The locks after the command, to be released: what the release finds is compared to it.
#[derive(Debug)]
pub(crate) struct ReleasedLocks {
    pub(super) keys: Vec<String>,
    signals: Vec<LostSignal>,
    /// Until when they are held unless they are renewed; `None` without limit.
    deadline: Option<Instant>,
}

impl ReleasedLocks {
    /// To be called when the command has ended.
    pub(crate) fn new(held: &CommandLocks<'_>) -> Self {
        Self {
            keys: held.keys().into_iter().map(str::to_owned).collect(),
            signals: held.guards().map(LockGuard::lost).collect(),
            deadline: held.valid_for().map(|left| Instant::now() + left),
        }
    }

    /// Why the first of them is lost, if this process knows.
    pub(crate) fn reason(&self) -> Option<LostReason> {
        self.signals.iter().find_map(LostSignal::reason)
    }

    /// Whether a lock that the release finds lost was lost before it, as far as known. At its deadline it may
    /// have ended by itself during the release, which says nothing of the command.
    pub(super) fn were_lost(&self) -> bool {
        match self.reason() {
            Some(reason) => !matches!(
                reason,
                LostReason::Expired | LostReason::MaxHold | LostReason::Unreachable
            ),
            None => self
                .deadline
                .is_none_or(|deadline| Instant::now() < deadline),
        }
    }
}
