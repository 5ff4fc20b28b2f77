//! The judge: a record of what the clients of a lock do, which `polylock-history` checks at the end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use polylock::LockGuard;
use polylock_history::{Checker, HistoryEvent, Violation, What};
use tokio::time::sleep;

/// How long a lock is valid, counted from before the request; none if it is not granted.
pub(crate) type Valid = Result<Option<Duration>>;

/// A client of a scheme.
pub(crate) struct Client {
    pub(crate) who: char,
    /// Those of the servers.
    pub(crate) ports: Vec<u16>,
    /// False for a client that is paused, as far as its scheme renews locks.
    pub(crate) renews: bool,
}

/// The lock of one client, as a scheme makes it.
pub(crate) trait Lock: Sized + Send + Sync {
    const SCHEME: &str;
    /// How many servers it takes.
    const SERVERS: usize = 1;

    fn connect(client: Client) -> impl Future<Output = Result<Self>> + Send;

    /// Tries once.
    fn acquire(&mut self) -> impl Future<Output = Valid> + Send;

    /// Releases what the client believes to hold; whether the server has removed a lock.
    fn release(&mut self) -> impl Future<Output = Result<bool>> + Send;

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

/// One scheme under one provocation. Clients have letters, and each holds the lock once.
pub(crate) struct Scene {
    pub(crate) scheme: &'static str,
    pub(crate) provocation: &'static str,
    notes: Vec<String>,
    /// What the judge found.
    pub(crate) broken: BTreeSet<Fault>,
    /// Whether two held the lock at once and that did no harm.
    pub(crate) fenced: bool,
    start: Instant,
    events: Vec<HistoryEvent>,
    /// When the latest request was sent, which the lock counts from.
    sent: u64,
    newest_token: u64,
}

impl Scene {
    pub(crate) fn begin<L: Lock>(provocation: &'static str) -> Self {
        Self {
            scheme: L::SCHEME,
            provocation,
            notes: Vec::new(),
            broken: BTreeSet::new(),
            fenced: false,
            start: Instant::now(),
            events: Vec::new(),
            sent: 0,
            newest_token: 0,
        }
    }

    /// A line of the story, which proves nothing.
    pub(crate) fn note(&mut self, text: &str) {
        let ms = self.start.elapsed().as_millis();
        self.notes.push(format!("{ms:>6} ms  {text}"));
    }

    pub(crate) fn story(&self) -> String {
        let (scheme, provocation) = (self.scheme, self.provocation);
        format!("{scheme}: {provocation}\n{}\n", self.notes.join("\n"))
    }

    /// Tries until the lock is granted, or for longer than any lock lasts.
    pub(crate) async fn enter(&mut self, who: char, lock: &mut impl Lock) -> Result<bool> {
        self.enter_within(who, lock, LONGEST_WAIT).await
    }

    /// Tries once.
    pub(crate) async fn try_enter(&mut self, who: char, lock: &mut impl Lock) -> Result<bool> {
        self.enter_within(who, lock, Duration::ZERO).await
    }

    async fn enter_within(
        &mut self,
        who: char,
        lock: &mut impl Lock,
        limit: Duration,
    ) -> Result<bool> {
        self.asks(who);
        let asked = Instant::now();
        loop {
            self.sent = nanos(self.start.elapsed());
            if let Some(valid) = lock.acquire().await? {
                self.enters(who, valid, lock);
                return Ok(true);
            }
            if asked.elapsed() >= limit {
                self.is_refused(who);
                return Ok(false);
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn asks(&mut self, who: char) {
        self.sent = nanos(self.start.elapsed());
        self.record(who, What::exclusive());
    }

    pub(crate) fn is_refused(&mut self, who: char) {
        let error = "Contended".to_owned();
        self.record(who, What::Refused { error });
    }

    pub(crate) fn enters(&mut self, who: char, valid: Duration, lock: &impl Lock) {
        let by_ttl = (valid != FOREVER).then(|| self.sent + nanos(valid));
        let (token, until) = (token(lock), self.until(lock).or(by_ttl));
        self.record(who, What::Granted { token, until });
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
        let is_grant = |event: &&HistoryEvent| matches!(event.what, What::Granted { .. });
        let mut grants = self.events.iter().filter(is_grant);
        let turn = grants.position(|event| event.attempt == u64::from(who));
        let turn = turn.map_or(0, |turn| turn as u64 + 1);
        let token = token.unwrap_or(turn);
        self.record(who, What::Wrote { token, accepted });
    }

    /// `held` is false for a release that was on its way for longer than the lock lasted.
    pub(crate) async fn release(
        &mut self,
        who: char,
        lock: &mut impl Lock,
        held: bool,
    ) -> Result<()> {
        self.record(who, What::Releasing { held });
        let clean = Some(lock.release().await?);
        self.record(who, What::Released { clean });
        Ok(())
    }

    /// Whether the client is notified that it has lost the lock.
    pub(crate) async fn is_notified(&mut self, who: char, lock: &mut impl Lock) -> bool {
        let Some(reason) = lock.notified().await else {
            return false;
        };
        self.record(who, What::Lost { reason });
        true
    }

    fn until(&self, lock: &impl Lock) -> Option<u64> {
        let until = lock.guard()?.valid_until()?.into_std();
        Some(nanos(until.saturating_duration_since(self.start)))
    }

    fn record(&mut self, who: char, what: What) {
        self.note(&format!("{who} {what:?}"));
        let at = nanos(self.start.elapsed());
        let mut event = HistoryEvent::new(at, "orders", u64::from(who), what);
        event.seq = self.events.len() as u64;
        self.events.push(event);
    }

    /// Judges what happened, which must be `expected`: what is known to break.
    pub(crate) fn judge(mut self, expected: &[Fault]) -> Result<Self> {
        let checker = Checker::new().with_max_idle(MAX_IDLE);
        let verdict = checker.check(&self.events);
        for (_, violation) in &verdict.violations {
            let fault = match violation {
                Violation::Overlap { .. } => Fault::Exclusion,
                Violation::RegisterWentBack { .. } => Fault::Fencing,
                Violation::Starved { .. } => Fault::Liveness,
                Violation::ForeignRelease { .. } | Violation::LostWithoutCause { .. } => {
                    Fault::Ownership
                }
                _ => bail!("{}: {violation}", self.scheme),
            };
            let violation = named(&violation.to_string());
            self.note(&format!("BROKEN {fault:?}: {violation}"));
            self.broken.insert(fault);
        }
        // Two at once do no harm if the first is notified, and what it writes late is refused.
        let harmless = verdict.summary.lost > 0
            && verdict.summary.stale_writes > 0
            && !self.broken.contains(&Fault::Fencing);
        self.fenced = harmless && self.broken.remove(&Fault::Exclusion);
        let (broken, story) = (&self.broken, self.story());
        let is_known = broken.iter().eq(expected);
        ensure!(is_known, "broke {broken:?}, expected {expected:?}: {story}");
        Ok(self)
    }
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

/// The lock of all schemes, and how long it lasts.
pub(crate) const KEY: &str = "lock:orders";
pub(crate) const TTL: Duration = Duration::from_secs(1);
/// How long a lock is valid that has no end.
pub(crate) const FOREVER: Duration = Duration::MAX;
/// How long a lock with waiters may be free. Waiters wait for longer.
const MAX_IDLE: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_secs(8);
