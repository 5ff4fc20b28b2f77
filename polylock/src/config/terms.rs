//! How locks of a backend or a class are requested.

use std::time::Duration;

use lock_core::{AcquireRequest, LockKey, Wait};

use super::place::{At, Found};
use super::report::Report;

/// How locks are requested: what the configuration says of ttl, wait and hold.
///
/// `None` stands for what it says nothing of; a request then has its own default.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    pub(super) max_hold: Option<Found<Option<Duration>>>,
    pub(super) min_hold: Option<Found<Duration>>,
    pub(super) ttl: Option<Found<Duration>>,
    pub(super) wait: Option<Found<Wait>>,
}

impl Terms {
    /// The lease.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl.as_ref().map(|found| found.value)
    }

    /// How long to wait.
    #[must_use]
    pub fn wait(&self) -> Option<Wait> {
        self.wait.as_ref().map(|found| found.value)
    }

    /// Longest time that the lock is renewed; `Some(None)` without end.
    #[must_use]
    pub fn max_hold(&self) -> Option<Option<Duration>> {
        self.max_hold.as_ref().map(|found| found.value)
    }

    /// Least time that the lock stays taken.
    #[must_use]
    pub fn min_hold(&self) -> Option<Duration> {
        self.min_hold.as_ref().map(|found| found.value)
    }

    /// Sets what the configuration says, and leaves the rest of the request as it is.
    #[must_use]
    pub fn apply(&self, mut request: AcquireRequest) -> AcquireRequest {
        if let Some(ttl) = self.ttl() {
            request = request.with_ttl(ttl);
        }
        if let Some(wait) = self.wait() {
            request = request.with_wait(wait);
        }
        if let Some(max_hold) = self.max_hold() {
            request = request.with_max_hold(max_hold);
        }
        if let Some(min_hold) = self.min_hold() {
            request = request.with_min_hold(min_hold);
        }
        request
    }

    /// These, and of those below what is not here.
    pub(super) fn over(self, below: &Self) -> Self {
        Self {
            max_hold: self.max_hold.or_else(|| below.max_hold.clone()),
            min_hold: self.min_hold.or_else(|| below.min_hold.clone()),
            ttl: self.ttl.or_else(|| below.ttl.clone()),
            wait: self.wait.or_else(|| below.wait.clone()),
        }
    }

    /// Reports what no request may have.
    pub(super) fn check(&self, report: &mut Report<'_>) {
        let unlimited = Some(Found::new(None, At::Default));
        let none = Self::default;
        let (ttl, min_hold, max_hold) = (&self.ttl, &self.min_hold, &self.max_hold);
        let alone = [
            (
                ttl.as_ref().map(|ttl| &ttl.at),
                Self {
                    ttl: ttl.clone(),
                    ..none()
                },
            ),
            (
                min_hold.as_ref().map(|min_hold| &min_hold.at),
                Self {
                    min_hold: min_hold.clone(),
                    max_hold: unlimited,
                    ..none()
                },
            ),
            (
                max_hold.as_ref().map(|max_hold| &max_hold.at),
                Self {
                    max_hold: max_hold.clone(),
                    ..none()
                },
            ),
        ];
        let wrong = |(at, terms): &(Option<&At>, Self)| Some(((*at)?.clone(), terms.wrong()?));
        let mut mistakes: Vec<_> = alone.iter().filter_map(wrong).collect();
        if mistakes.is_empty() {
            // The two do not go together: the default of max-hold is an hour.
            let at = max_hold.as_ref().map(|max_hold| &max_hold.at);
            let at = at.or_else(|| min_hold.as_ref().map(|min_hold| &min_hold.at));
            mistakes.extend(wrong(&(at, self.clone())));
        }
        for (at, message) in mistakes {
            report.mistake(&at, message);
        }
        if let Some(ttl) = ttl.as_ref().filter(|ttl| ttl.value < SHORT) {
            let message = "a lease below 5s is lost in a short pause or fail-over";
            report.warning(&ttl.at, message);
        }
    }

    fn wrong(&self) -> Option<String> {
        let key = LockKey::new("any").expect("BUG: a word is a key");
        let request = self.apply(AcquireRequest::new(key));
        let error = request.validate().err()?;
        Some(error.message().replace("_hold", "-hold"))
    }
}

/// A ttl below is warned of, as by the engine.
const SHORT: Duration = Duration::from_secs(5);
