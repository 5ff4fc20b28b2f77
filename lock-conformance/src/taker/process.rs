use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polylock_core::LockKey;
use rustix::process::{Pid, Signal, kill_process};

use crate::history::{HistoryEvent, What};
use crate::lock;

/// Where the lock-taker of a backend is, and the URL that leads it to the store of a test.
#[derive(Clone, Debug)]
pub struct Taker {
    /// The program, behind what runs it.
    words: Vec<OsString>,
    url: String,
}

impl Taker {
    /// The program at a path. The URL has to name the same keys as the clients of the harness do:
    /// those of a bare backend need `namespace=` in it.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, url: impl Into<String>) -> Self {
        Self {
            words: vec![program.into().into_os_string()],
            url: url.into(),
        }
    }

    /// The example of this name in the package under test, which cargo builds with the tests.
    ///
    /// # Panics
    ///
    /// If the example does not exist.
    #[must_use]
    pub fn example(name: &str, url: impl Into<String>) -> Self {
        let test = std::env::current_exe().expect("a test has a path");
        // target/debug/deps/test-0123 beside target/debug/examples/name
        let target = test
            .parent()
            .and_then(Path::parent)
            .expect("a test lies in target/*/deps");
        let program = target.join("examples").join(name);
        assert!(
            program.exists(),
            "{} is not built, `cargo build --examples`",
            program.display()
        );
        Self::new(program, url)
    }

    /// Runs it by another program, such as one that enters a network namespace: these words come
    /// before the program.
    #[must_use]
    pub fn with_prefix(mut self, words: impl IntoIterator<Item = OsString>) -> Self {
        self.words = words.into_iter().chain(self.words).collect();
        self
    }

    /// Prepares a process that acquires a lock.
    #[must_use]
    pub fn take(&self, key: &LockKey) -> Take {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command.args(["--url", &self.url, "--key", key.as_str()]);
        Take { command }
    }
}

/// A lock-taker about to be started. By default it waits for 30 s, holds until it is killed, and
/// renews its lease.
#[derive(Debug)]
pub struct Take {
    command: Command,
}

impl Take {
    fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.arg(name).arg(value);
        self
    }

    /// Sets the ttl of the lease.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        self.with("--ttl", format!("{}ns", ttl.as_nanos()))
    }

    /// Sets how long each hold lasts.
    #[must_use]
    pub fn with_hold(self, hold: Duration) -> Self {
        self.with("--hold", format!("{}ns", hold.as_nanos()))
    }

    /// Sets how long to wait.
    #[must_use]
    pub fn with_wait(self, wait: Duration) -> Self {
        self.with("--wait", format!("{}ns", wait.as_nanos()))
    }

    /// Sets how often the lock is taken.
    #[must_use]
    pub fn with_rounds(self, rounds: u32) -> Self {
        self.with("--rounds", rounds.to_string())
    }

    /// Adds one to the counter in a file during each hold: reads it, sleeps, writes it.
    #[must_use]
    pub fn with_increment(self, file: &Path) -> Self {
        self.with("--increment", file)
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// Those of starting a process.
    pub fn spawn(self) -> io::Result<TakerProcess> {
        TakerProcess::spawn(self.command)
    }
}

/// A lock-taker that runs; killed and reaped when the value is dropped.
pub struct TakerProcess {
    child: Child,
    events: Arc<Mutex<Vec<HistoryEvent>>>,
    reader: Option<std::thread::JoinHandle<io::Result<()>>>,
}

impl TakerProcess {
    /// Starts another program that tells its history as JSON lines on its standard output.
    ///
    /// # Errors
    ///
    /// Those of starting a process.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| io::Error::other("no output"))?;
        let events = Arc::<Mutex<Vec<HistoryEvent>>>::default();
        let sink = Arc::clone(&events);
        let reader = std::thread::spawn(move || read(BufReader::new(output), &sink));
        Ok(Self {
            child,
            events,
            reader: Some(reader),
        })
    }

    /// Returns the events so far.
    #[must_use]
    pub fn events(&self) -> Vec<HistoryEvent> {
        lock(&self.events).clone()
    }

    /// Waits for the first event that `wanted` accepts.
    ///
    /// # Panics
    ///
    /// If it does not come `within` the time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn told(
        &self,
        within: Duration,
        wanted: impl Fn(&What) -> bool + Send,
    ) -> HistoryEvent {
        let deadline = Instant::now() + within;
        loop {
            let found = lock(&self.events)
                .iter()
                .find(|event| wanted(&event.what))
                .cloned();
            if let Some(event) = found {
                return event;
            }
            assert!(Instant::now() < deadline, "it has told {:?}", self.events());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops the process with SIGSTOP, like a machine that freezes. On Linux, it has stopped on return.
    ///
    /// # Errors
    ///
    /// Those of kill(2).
    pub fn stop(&self) -> io::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::STOP)?;
        let state = format!("/proc/{}/stat", self.child.id());
        let runs = || {
            let state = std::fs::read_to_string(&state).unwrap_or_default();
            let state = state.rsplit(')').next().map(str::trim_start);
            state.is_some_and(|state| state.starts_with(['R', 'S', 'D']))
        };
        while runs() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Lets it go on: SIGCONT.
    ///
    /// # Errors
    ///
    /// Those of kill(2).
    pub fn resume(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }

    /// Kills and reaps it: SIGKILL. What it has told until then can still be read.
    ///
    /// # Errors
    ///
    /// Those of kill(2) and wait(2).
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.wait().map(drop)
    }

    /// Waits until it ends by itself, and reaps it.
    ///
    /// Blocks the thread.
    ///
    /// # Errors
    ///
    /// Those of wait(2), and of reading what it told.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        match self.reader.take().map(std::thread::JoinHandle::join) {
            Some(Ok(read)) => read?,
            Some(Err(_)) => return Err(io::Error::other("the reader panicked")),
            None => {}
        }
        Ok(status)
    }
}

impl Drop for TakerProcess {
    fn drop(&mut self) {
        // A process that has been reaped already refuses, and then nothing is left to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl fmt::Debug for TakerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakerProcess")
            .field("pid", &self.child.id())
            .finish_non_exhaustive()
    }
}

fn read(mut lines: impl BufRead, events: &Mutex<Vec<HistoryEvent>>) -> io::Result<()> {
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        // A line without its end comes from a process that was killed.
        if let Some(complete) = line.strip_suffix('\n') {
            let event = serde_json::from_str(complete)?;
            lock(events).push(event);
        }
        line.clear();
    }
    Ok(())
}
