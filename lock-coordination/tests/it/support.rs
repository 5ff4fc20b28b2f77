use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use polylock_coordination::{Election, Term};
use polylock_core::engine::{Clock, Engine, Moment, OsEntropy, Spawn, Task, VirtualClock};
use polylock_core::memory::Memory;
use polylock_core::{Label, LockKey};
use polylock_history::{Event, What};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

pub(crate) const NAME: &str = "scheduler";
pub(crate) const TTL: Duration = Duration::from_secs(10);

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn key() -> LockKey {
    LockKey::new(NAME).expect("a literal is a key")
}

/// A store on the clock of the current runtime, which stands still.
pub(crate) fn memory() -> Memory {
    Memory::with_engine(Engine::on_current_runtime("memory"))
}

pub(crate) fn label(name: &str) -> Label {
    Label::of_this_process().with_note(name)
}

/// A candidate that is a process of its own.
pub(crate) fn candidate(store: &Memory, name: &str) -> Election {
    let client = store.client_with(Engine::on_current_runtime("memory"));
    election(client, name)
}

pub(crate) fn election(client: Memory, name: &str) -> Election {
    let election = Election::new(Arc::new(client), NAME).expect("memory has all that it takes");
    election.ttl(TTL).label(label(name))
}

/// Polls a future `times`, each time after the others have gone on, and drops it then unless it is ready.
pub(crate) async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for _ in 0..times {
        let poll = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = poll {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// A process whose tasks and whose clock can stand still.
#[derive(Clone)]
pub(crate) struct Machine(Arc<State>);

struct State {
    clock: VirtualClock,
    /// How late it is, while the clock stands.
    stopped: Mutex<Option<Moment>>,
    /// Tasks that were woken while the process was frozen; `None` if it runs.
    parked: Mutex<Option<Vec<Waker>>>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self(Arc::new(State {
            clock: VirtualClock::new(),
            stopped: Mutex::default(),
            parked: Mutex::default(),
        }))
    }

    pub(crate) fn client(&self, store: &Memory) -> Memory {
        let clock: Arc<dyn Clock> = Arc::new(self.clone());
        let entropy = Arc::new(OsEntropy::default());
        store.client_with(Engine::with(
            "memory",
            clock,
            entropy,
            Arc::new(self.clone()),
        ))
    }

    /// Stops its tasks, as SIGSTOP does; its clock goes on.
    pub(crate) fn freeze(&self) {
        *lock(&self.0.parked) = Some(Vec::new());
    }

    /// Stops its clock as well.
    pub(crate) fn freeze_with_clock(&self) {
        self.freeze();
        *lock(&self.0.stopped) = Some(self.0.clock.now());
    }

    /// Lets its tasks run. A clock that was stopped goes on standing.
    pub(crate) fn thaw(&self) {
        let parked = lock(&self.0.parked).take();
        parked.into_iter().flatten().for_each(Waker::wake);
    }

    /// Runs a task of the process.
    pub(crate) fn run<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let (machine, mut task) = (self.clone(), Box::pin(task));
        tokio::spawn(std::future::poll_fn(move |cx| {
            if let Some(parked) = &mut *lock(&machine.0.parked) {
                parked.push(cx.waker().clone());
                return Poll::Pending;
            }
            task.as_mut().poll(cx)
        }))
    }
}

impl Clock for Machine {
    fn now(&self) -> Moment {
        let stopped = *lock(&self.0.stopped);
        stopped.unwrap_or_else(|| self.0.clock.now())
    }
}

impl Spawn for Machine {
    fn spawn(&self, task: Task) {
        drop(self.run(task));
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        poll();
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}

/// What happens to the leaders of one election, for the judge.
#[derive(Clone)]
pub(crate) struct Diary {
    began: Instant,
    terms: Arc<AtomicU64>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Diary {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            terms: Arc::default(),
            events: Arc::default(),
        }
    }

    /// The work of a leader, which goes on until it is dropped.
    pub(crate) async fn lead(self, term: Term) {
        let number = self.terms.fetch_add(1, Ordering::SeqCst) + 1;
        self.note(number, What::exclusive());
        let token = Some(term.fencing_token().value());
        self.note(
            number,
            What::Granted {
                token,
                until: self.until(&term),
            },
        );
        let at_work = AtWork {
            diary: self,
            term,
            number,
        };
        loop {
            sleep(millis(70)).await;
            at_work.diary.note(
                number,
                What::Held {
                    until: at_work.diary.until(&at_work.term),
                },
            );
        }
    }

    /// The server ends what is held.
    pub(crate) fn interfered(&self) {
        self.note(
            0,
            What::Interfered {
                how: "ended by the server".to_owned(),
            },
        );
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }

    pub(crate) fn terms(&self) -> u64 {
        self.terms.load(Ordering::SeqCst)
    }

    fn until(&self, term: &Term) -> Option<u64> {
        let until = term.lost().valid_until()?;
        Some(self.nanos(until))
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_nanos()).expect("tests are short")
    }

    fn note(&self, term: u64, what: What) {
        let mut events = lock(&self.events);
        let mut event = Event::new(self.nanos(Instant::now()), NAME, term, what);
        event.seq = u64::try_from(events.len()).expect("tests are short");
        events.push(event);
    }
}

/// Dropped, the work has ended.
struct AtWork {
    diary: Diary,
    term: Term,
    number: u64,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let what = match self.term.lost().reason() {
            Some(reason) => What::Lost {
                reason: reason.as_str().to_owned(),
            },
            None => What::Releasing { held: true },
        };
        self.diary.note(self.number, what);
    }
}

pub(crate) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().expect("no thread panics with it")
}
