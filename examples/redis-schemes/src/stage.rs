//! What the scenes need: servers, and a record of what the clients do that is judged at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lock_history::{Checker, Event, Violation, What};
use lock_testkit::proxy::{Direction, Proxy};
use lock_testkit::servers::{RedisNodes, RedisOptions, RedisServer};
use polylock::LockGuard;
use redis::aio::MultiplexedConnection;
use tokio::task::block_in_place;
use tokio::time::sleep;

pub(crate) const KEY: &str = "lock:orders";

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
    pub(crate) const ALL: [Self; 4] = [
        Self::Exclusion,
        Self::Ownership,
        Self::Liveness,
        Self::Fencing,
    ];

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
        self.story.push(format!(
            "{:>6} ms  {text}",
            self.start.elapsed().as_millis()
        ));
    }

    /// Goes before the request, which the lease counts from; after it where a lock has been waited
    /// for, and when its own lease ends does not matter.
    pub(crate) fn asks(&mut self, who: char) {
        self.asked.insert(who, self.now());
        self.record(who, What::exclusive());
    }

    /// `ttl` is what the client knows of the end of its lock; `None` if it has none.
    pub(crate) fn enters(&mut self, who: char, ttl: Option<Duration>) {
        let until = ttl.map(|ttl| self.asked[&who] + nanos(ttl));
        self.granted(who, until, None);
    }

    /// The same with a guard, which knows its end and its token.
    pub(crate) fn enters_with(&mut self, who: char, guard: &LockGuard) {
        let until = self.until(guard);
        self.granted(who, until, guard.fencing_token().map(u64::from));
    }

    /// Works under the lock: the client believes that it holds it.
    pub(crate) fn writes(&mut self, who: char) {
        self.record(who, What::Held { until: None });
        self.write(who, None);
    }

    pub(crate) fn writes_with(&mut self, who: char, guard: &LockGuard) {
        let until = self.until(guard);
        if guard.is_held() {
            self.record(who, What::Held { until });
        }
        self.write(who, guard.fencing_token().map(u64::from));
    }

    /// A write that was on its way while its client was paused or lost the lock.
    pub(crate) fn late_write(&mut self, who: char, guard: Option<&LockGuard>) {
        let token = guard.and_then(LockGuard::fencing_token).map(u64::from);
        self.write(who, token);
    }

    /// Releases what the client believes to hold; `removed` is the answer of the server.
    pub(crate) fn releases(&mut self, who: char, removed: bool) {
        self.released(who, true, removed);
    }

    /// A release that was on its way for longer than the lock lasted.
    pub(crate) fn late_release(&mut self, who: char, removed: bool) {
        self.released(who, false, removed);
    }

    pub(crate) fn is_notified(&mut self, who: char, how: &str) {
        self.record(
            who,
            What::Lost {
                reason: "notified".to_owned(),
            },
        );
        self.note(&format!("{who} IS NOTIFIED of the loss: {how}"));
    }

    pub(crate) fn gives_up(&mut self, who: char, why: &str) {
        self.record(
            who,
            What::Refused {
                error: "Contended".to_owned(),
            },
        );
        self.note(&format!("{who} GIVES UP: {why}"));
    }

    fn released(&mut self, who: char, held: bool, removed: bool) {
        self.record(who, What::Releasing { held });
        let clean = Some(removed);
        self.record(who, What::Released { clean });
        let answer = if removed {
            "a lock is removed"
        } else {
            "nothing is removed"
        };
        self.note(&format!("{who} releases: {answer}"));
    }

    fn granted(&mut self, who: char, until: Option<u64>, token: Option<u64>) {
        self.record(who, What::Granted { token, until });
        let before = self.entered.len() as u64;
        self.entered.insert(who, before + 1);
        let until = until.map(|until| Duration::from_nanos(until).as_millis());
        let until = until.map_or_else(
            || "without an end".to_owned(),
            |ms| format!("until {ms} ms"),
        );
        self.note(&format!("{who} ENTERS {until}"));
    }

    /// What the lock protects refuses a smaller token than it has seen, and takes everything that
    /// comes without one. For the judge, the order of the holders stands for a missing token.
    fn write(&mut self, who: char, token: Option<u64>) {
        let accepted = token.is_none_or(|token| token >= self.newest_token);
        self.newest_token = self.newest_token.max(token.unwrap_or(0));
        let order = token.unwrap_or_else(|| self.entered[&who]);
        self.record(
            who,
            What::Wrote {
                token: order,
                accepted,
            },
        );
        let answer = if accepted { "accepted" } else { "REFUSED" };
        self.note(&format!("{who} writes: {answer}"));
    }

    fn until(&self, guard: &LockGuard) -> Option<u64> {
        let until = guard.valid_until()?.into_std();
        Some(nanos(until.saturating_duration_since(self.start)))
    }

    fn record(&mut self, who: char, what: What) {
        let mut event = Event::new(self.now(), KEY, u64::from(who), what);
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
        let fenced = harmless && broken.remove(&Fault::Exclusion).is_some();
        let as_expected = broken.keys().copied().eq(sorted(expected));
        Ok(Report {
            scheme: self.scheme,
            provocation: self.provocation,
            story: self.story,
            broken,
            fenced,
            as_expected,
        })
    }
}

/// What happened in a scene and what that broke.
pub(crate) struct Report {
    pub(crate) scheme: &'static str,
    pub(crate) provocation: &'static str,
    pub(crate) story: Vec<String>,
    pub(crate) broken: BTreeMap<Fault, String>,
    pub(crate) fenced: bool,
    pub(crate) as_expected: bool,
}

fn sorted(faults: &[Fault]) -> impl Iterator<Item = Fault> {
    let mut faults = faults.to_vec();
    faults.sort_unstable();
    faults.into_iter()
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
pub(crate) const IN_VAIN: Duration = Duration::from_secs(6);

/// A server of its own, which keeps everything in memory.
pub(crate) fn server() -> RedisServer {
    block_in_place(|| RedisServer::start(RedisOptions::new()))
}

pub(crate) fn nodes() -> RedisNodes {
    block_in_place(|| RedisNodes::start(3, &RedisOptions::new()))
}

pub(crate) async fn connect(port: u16) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(("127.0.0.1", port))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

/// A master with an asynchronous replica that does not know what the master does from now on.
pub(crate) struct Pair {
    pub(crate) master: RedisServer,
    pub(crate) replica: RedisServer,
    _wire: Proxy,
}

impl Pair {
    pub(crate) async fn part() -> Result<Self> {
        let master = server();
        let wire = block_in_place(|| Proxy::of_bytes(master.port()));
        let address = format!("127.0.0.1 {}", wire.port());
        let options = RedisOptions::new().with_config("replicaof", &address);
        let replica = block_in_place(|| RedisServer::start(options));
        let info = || block_in_place(|| replica.try_command(&["INFO", "replication"]));
        while !info()?
            .text()
            .is_some_and(|info| info.contains("master_link_status:up"))
        {
            sleep(Duration::from_millis(20)).await;
        }
        wire.hold(Direction::Replies);
        Ok(Self {
            master,
            replica,
            _wire: wire,
        })
    }

    /// The master dies and the replica takes its place.
    pub(crate) fn fail_over(&self) -> Result<()> {
        block_in_place(|| self.master.kill());
        let promoted = block_in_place(|| self.replica.try_command(&["REPLICAOF", "NO", "ONE"]))?;
        ensure!(!promoted.is_error(), "the replica does not become a master");
        Ok(())
    }
}
