use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::history::{HistoryEvent, What};

/// A lock-taker that runs; killed and reaped when the value is dropped.
pub struct TakerProcess {
    child: Child,
    pid: Pid,
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
        command.spawn().and_then(Self::new)
    }

    fn new(mut child: Child) -> io::Result<Self> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
        let output = child
            .stdout
            .take()
            .ok_or_else(|| io::Error::other("no output"))?;
        let events = Arc::<Mutex<Vec<HistoryEvent>>>::default();
        let sink = Arc::clone(&events);
        let reader = std::thread::spawn(move || read(BufReader::new(output), &sink));
        Ok(Self {
            child,
            pid,
            events,
            reader: Some(reader),
        })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
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
        kill_process(self.pid, Signal::STOP)?;
        let state = format!("/proc/{}/stat", self.pid());
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
        Ok(kill_process(self.pid, Signal::CONT)?)
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
            .field("pid", &self.pid())
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

fn lock(events: &Mutex<Vec<HistoryEvent>>) -> MutexGuard<'_, Vec<HistoryEvent>> {
    events.lock().unwrap_or_else(PoisonError::into_inner)
}
