//! The judge: a record of what the clients of a lock do, which `lock-history` checks at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lock_history::{Checker, Event, Violation, What};
use polylock::LockGuard;
use tokio::time::sleep;

/// The lock of one client, as a scheme makes it.
pub(crate) trait Lock: Send + Sync {
    /// Tries once. Returns how long the lock is valid, counted from before the request.
    fn acquire(&mut self) -> impl Future<Output = Result<Option<Duration>>> + Send;

    /// Releases what the client believes to hold; whether the server has removed a lock.
    fn release(&mut self) -> impl Future<Output = Result<bool>> + Send;

    /// Waits until another try makes sense.
    fn wait(&mut self) -> impl Future<Output = Result<()>> + Send {
        async {
            sleep(Duration::from_millis(10)).await;
            Ok(())
        }
    }

    /// From here on the client sends nothing.
    fn die(&mut self) {}

    /// Waits for the notification that the lock is lost, of a scheme that has one.
    fn notified(&mut self) -> impl Future<Output = Option<String>> + Send {
        async { None }
    }

    /// Knows by itself until when it is valid, and has a fencing token. Only polylock has one.
    fn guard(&self) -> Option<&LockGuard> {
        None
    }
}

/// What a scheme fails to keep.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Fault {
    /// Two hold the lock at once.
    Exclusion,
    /// A late write of a former holder is accepted.
    Fencing,
    /// A lock stays taken that nobody holds.
    Liveness,
    /// A client removes or overwrites the lock of another one.
    Ownership,
}

impl Fault {
    fn of(violation: &Violation) -> Option<Self> {
        match violation {
            Violation::Overlap { .. } => Some(Self::Exclusion),
            Violation::RegisterWentBack { .. } => Some(Self::Fencing),
            Violation::Starved { .. } => Some(Self::Liveness),
            Violation::ForeignRelease { .. } | Violation::LostWithoutCause { .. } => {
                Some(Self::Ownership)
            }
            _ => None,
        }
    }
}

/// One scheme under one provocation. Clients have letters, and each holds the lock once.
pub(crate) struct Scene {
    scheme: &'static str,
    provocation: &'static str,
    start: Instant,
    events: Vec<Event>,
    story: Vec<String>,
    /// When each client asked, and how many had held the lock before it.
    asked: BTreeMap<char, u64>,
    entered: BTreeMap<char, u64>,
    newest_token: u64,
}

impl Scene {
    pub(crate) fn begin(scheme: &'static str, provocation: &'static str) -> Self {
        Self {
            scheme,
            provocation,
            start: Instant::now(),
            events: Vec::new(),
            story: Vec::new(),
            asked: BTreeMap::new(),
            entered: BTreeMap::new(),
            newest_token: 0,
        }
    }

    /// A line of the story that proves nothing.
    pub(crate) fn note(&mut self, text: &str) {
        let ms = self.start.elapsed().as_millis();
        self.story.push(format!("{ms:>6} ms  {text}"));
    }

    /// Tries until the lock is granted.
    pub(crate) async fn enter(&mut self, who: char, lock: &mut impl Lock) -> Result<()> {
        while !self.try_enter(who, lock).await? {
            lock.wait().await?;
        }
        Ok(())
    }

    /// Tries once.
    pub(crate) async fn try_enter(&mut self, who: char, lock: &mut impl Lock) -> Result<bool> {
        self.asks(who);
        let valid = lock.acquire().await?;
        match valid {
            Some(valid) => self.enters(who, valid, lock),
            None => self.is_refused(who),
        }
        Ok(valid.is_some())
    }

    /// Tries for longer than any lock lasts, and gives up then.
    pub(crate) async fn enter_if_ever(
        &mut self,
        who: char,
        lock: &mut impl Lock,
        why: &str,
    ) -> Result<bool> {
        self.asks(who);
        let asked = Instant::now();
        while asked.elapsed() < IN_VAIN {
            if let Some(valid) = lock.acquire().await? {
                self.enters(who, valid, lock);
                return Ok(true);
            }
            lock.wait().await?;
        }
        self.is_refused(who);
        self.note(&format!("{who} GIVES UP: {why}"));
        Ok(false)
    }

    /// Goes before the request, which the lease counts from.
    pub(crate) fn asks(&mut self, who: char) {
        self.asked.insert(who, self.now());
        self.record(who, What::exclusive());
    }

    pub(crate) fn is_refused(&mut self, who: char) {
        let error = "Contended".to_owned();
        self.record(who, What::Refused { error });
    }

    pub(crate) fn enters(&mut self, who: char, valid: Duration, lock: &impl Lock) {
        let until = match valid {
            FOREVER => None,
            valid => Some(
                self.until(lock)
                    .unwrap_or_else(|| self.asked[&who] + nanos(valid)),
            ),
        };
        let token = token(lock);
        self.record(who, What::Granted { token, until });
        self.entered.insert(who, self.entered.len() as u64 + 1);
        let until = until.map(|until| Duration::from_nanos(until).as_millis());
        let until = until.map(|ms| format!("until {ms} ms"));
        let until = until.as_deref().unwrap_or("without an end");
        self.note(&format!("{who} ENTERS {until}"));
    }

    /// Works under the lock, if the client believes that it holds it.
    pub(crate) fn writes(&mut self, who: char, lock: &impl Lock) {
        if lock.guard().is_none_or(LockGuard::is_held) {
            let until = self.until(lock);
            self.record(who, What::Held { until });
        }
        self.late_write(who, lock);
    }

    /// A write that was on its way while its client was paused or lost the lock. What the lock
    /// protects refuses a smaller token than it has seen, and takes everything that comes without
    /// one. For the judge, the order of the holders stands for a missing token.
    pub(crate) fn late_write(&mut self, who: char, lock: &impl Lock) {
        let token = token(lock);
        let accepted = token.is_none_or(|token| token >= self.newest_token);
        self.newest_token = self.newest_token.max(token.unwrap_or(0));
        let token = token.unwrap_or_else(|| self.entered[&who]);
        self.record(who, What::Wrote { token, accepted });
        let answer = if accepted { "accepted" } else { "REFUSED" };
        self.note(&format!("{who} writes: {answer}"));
    }

    /// `held` is false for a release that was on its way for longer than the lock lasted.
    pub(crate) async fn release(
        &mut self,
        who: char,
        lock: &mut impl Lock,
        held: bool,
    ) -> Result<()> {
        self.record(who, What::Releasing { held });
        let removed = lock.release().await?;
        let clean = Some(removed);
        self.record(who, What::Released { clean });
        let what = if removed { "a lock" } else { "nothing" };
        self.note(&format!("{who} releases: {what} is removed"));
        Ok(())
    }

    /// Whether the client is notified that it has lost the lock.
    pub(crate) async fn is_notified(&mut self, who: char, lock: &mut impl Lock) -> bool {
        let Some(how) = lock.notified().await else {
            return false;
        };
        let reason = "notified".to_owned();
        self.record(who, What::Lost { reason });
        self.note(&format!("{who} IS NOTIFIED of the loss: {how}"));
        true
    }

    fn until(&self, lock: &impl Lock) -> Option<u64> {
        let until = lock.guard()?.valid_until()?.into_std();
        Some(nanos(until.saturating_duration_since(self.start)))
    }

    fn record(&mut self, who: char, what: What) {
        let mut event = Event::new(self.now(), "orders", u64::from(who), what);
        event.seq = self.events.len() as u64;
        self.events.push(event);
    }

    fn now(&self) -> u64 {
        nanos(self.start.elapsed())
    }

    /// Judges what happened; `expected` is what is known to break.
    pub(crate) fn judge(self, expected: &[Fault]) -> Result<Report> {
        let checker = Checker::new().with_max_idle(MAX_IDLE);
        let verdict = checker.check(&self.events);
        let mut broken = BTreeMap::new();
        for (_, violation) in &verdict.violations {
            let fault = Fault::of(violation);
            ensure!(fault.is_some(), "{}: {violation}", self.scheme);
            broken.extend(fault.map(|fault| (fault, named(&violation.to_string()))));
        }
        // Two at once do no harm if the first is notified, and what it writes late is refused.
        let harmless = verdict.summary.lost > 0
            && verdict.summary.stale_writes > 0
            && !broken.contains_key(&Fault::Fencing);
        Ok(Report {
            scheme: self.scheme,
            provocation: self.provocation,
            story: self.story,
            fenced: harmless && broken.remove(&Fault::Exclusion).is_some(),
            as_expected: broken.keys().eq(expected),
            broken,
        })
    }
}

/// What happened in a scene and what that broke.
pub(crate) struct Report {
    pub(crate) scheme: &'static str,
    pub(crate) provocation: &'static str,
    pub(crate) story: Vec<String>,
    pub(crate) fenced: bool,
    pub(crate) as_expected: bool,
    pub(crate) broken: BTreeMap<Fault, String>,
}

fn token(lock: &impl Lock) -> Option<u64> {
    lock.guard()?.fencing_token().map(u64::from)
}

/// The judge numbers acquisitions by the letters of their clients.
fn named(violation: &str) -> String {
    let name = |word: &str| match word.parse::<u8>() {
        Ok(code @ b'A'..=b'Z') => char::from(code).to_string(),
        _ => word.to_owned(),
    };
    violation.split(' ').map(name).collect::<Vec<_>>().join(" ")
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How long a lock with waiters may be free; those that wait in vain wait for longer.
const MAX_IDLE: Duration = Duration::from_secs(5);
const IN_VAIN: Duration = Duration::from_secs(6);
/// How long a lock is valid that has no end.
pub(crate) const FOREVER: Duration = Duration::MAX;
