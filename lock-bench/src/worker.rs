//! Contenders that are processes. The run writes a `WorkerOrder` to the standard input of each, and
//! later the window; a contender answers each step with a `Result` in a line of JSON. The URL has
//! secrets, and therefore comes by a pipe and not in an argument.

use std::future::pending;
use std::io::{self, BufRead as _, Write as _};
use std::process::Stdio;
use std::time::Duration;
use std::{env, process, thread};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::clock;
use crate::measure::{RecordedSpans, Window};
use crate::subject::{Failure, UNSUPPORTED};
use crate::target::{Openers, Target};
use crate::workloads::{ContenderJob, HeldLocks};

/// The hidden argument with which a program is started as a contender.
pub const ARGUMENT: &str = "bench-worker";

/// The first line that a contender gets.
#[derive(Deserialize, Serialize)]
struct WorkerOrder {
    url: String,
    /// The number of the run, if its bare commands are measured and not the target itself.
    bare: Option<u64>,
    work: WorkerTask,
}

/// What a process is for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum WorkerTask {
    Contend(ContenderJob),
    /// To hold so many locks and do nothing else.
    Footprint(ContenderJob),
    /// To acquire this lock, and to be killed.
    Hold {
        name: String,
        ttl: Duration,
    },
}

/// A contender that is a process. It ends with this value.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl WorkerProcess {
    /// Starts one and tells it what to do; for the bare commands of the run with this number, if
    /// there is one.
    pub(crate) async fn start(
        target: &Target,
        bare: Option<u64>,
        work: WorkerTask,
    ) -> Result<Self, Failure> {
        let broken = |error| Failure::of(PROCESSES, &error);
        let program = match &target.worker {
            Some(program) => program.clone(),
            None => env::current_exe().map_err(broken)?,
        };
        let mut child = Command::new(program)
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(broken)?;
        let mut process = Self {
            input: child.stdin.take().expect("BUG: it is piped"),
            output: BufReader::new(child.stdout.take().expect("BUG: it is piped")),
            child,
        };
        let url = target.url().to_owned();
        process.say(&WorkerOrder { url, bare, work }).await?;
        Ok(process)
    }

    /// Waits until it has started, and returns what it says then.
    pub(crate) async fn started<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        self.hear(START_TIMEOUT).await
    }

    /// Waits until it is done, which it is so long after the window.
    pub(crate) async fn recorded(
        mut self,
        window: Window,
        after: Duration,
    ) -> Result<RecordedSpans, Failure> {
        let limit = clock::until(window.end) + after + END_TIMEOUT;
        let recorded = self.hear(limit).await?;
        // It ends by itself, and is killed if it does not.
        let _ended = timeout(END_TIMEOUT, self.child.wait()).await;
        Ok(recorded)
    }

    /// Kills it, without a chance to release anything; returns the time before that.
    pub(crate) async fn kill(mut self) -> Result<u64, Failure> {
        let before = clock::now();
        let killed = self.child.kill().await;
        killed.map_err(|error| Failure::of(PROCESSES, &error))?;
        Ok(before)
    }

    /// Tells it the next step, such as the window.
    pub(crate) async fn say(&mut self, what: &(impl Serialize + Sync)) -> Result<(), Failure> {
        let written = self.input.write_all(&line(what)).await;
        written.map_err(|_| silent())
    }

    async fn hear<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T, Failure> {
        let mut line = String::new();
        match timeout(limit, self.output.read_line(&mut line)).await {
            Err(_) => return Err(silent()),
            Ok(Err(_) | Ok(0)) => return Err(self.gone().await),
            Ok(Ok(_)) => {}
        }
        serde_json::from_str(&line).unwrap_or_else(|_| {
            let message = "a contender says something else; is it the same program?";
            Err(Failure::new(PROCESSES, message))
        })
    }

    async fn gone(&mut self) -> Failure {
        match timeout(END_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) => {
                let text = format!("a contender ended without an answer: {status}");
                Failure::new(PROCESSES, text)
            }
            _ => silent(),
        }
    }
}

/// Kind of what goes wrong with contenders themselves.
pub(crate) const PROCESSES: &str = "processes";

/// Many start at a time on few processors.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// After the end of the window; contenders that are stuck give up earlier by themselves.
const END_TIMEOUT: Duration = Duration::from_secs(20);

fn silent() -> Failure {
    Failure::new(PROCESSES, "a contender does not answer")
}

/// Is a contender: reads what it has to do from the standard input, does it, and writes what came
/// out to the standard output. The process ends with its parent.
///
/// # Errors
///
/// If the parent is not one, or is gone. What goes wrong with locks is told to the parent.
///
/// # Cancel safety
///
/// A lock that it has stays taken for one ttl at most.
pub async fn serve(openers: &Openers) -> Result<(), Failure> {
    let mut parent = Parent::listen();
    let order = parent.hear().await?;
    let done = obey(&mut parent, openers, order).await;
    say(&done)
}

async fn obey(
    parent: &mut Parent,
    openers: &Openers,
    order: WorkerOrder,
) -> Result<RecordedSpans, Failure> {
    let target = openers.target("contender", order.url)?;
    let opened = match order.bare {
        None => target.open().await?,
        Some(run) => {
            let bare = target.bare(run).await?;
            bare.ok_or_else(|| Failure::new("protocol", "there are no bare commands"))?
        }
    };
    let recorded = match order.work {
        WorkerTask::Contend(job) => {
            let window = parent.window().await?;
            opened.contend(job, window).await?
        }
        WorkerTask::Footprint(job) => {
            let locks = opened.locks.clone();
            let locks = locks.ok_or_else(|| Failure::new(UNSUPPORTED, "not locks of polylock"))?;
            let held = HeldLocks::acquire(locks, job).await?;
            let window = parent.window().await?;
            held.measure(window).await?
        }
        WorkerTask::Hold { name, ttl } => {
            let acquired = opened.acquire(name, ttl, MAX_WAIT).await?;
            let held =
                acquired.ok_or_else(|| Failure::new("contended", "a lock of its own is taken"))?;
            say(&Ok::<_, Failure>(held.token))?;
            // Ends by the kill, or with the parent.
            pending().await
        }
    };
    opened.close().await;
    Ok(recorded)
}

/// A wait for a lock that no other program knows.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The run that has started this process, and ends it by closing its standard input.
struct Parent(mpsc::UnboundedReceiver<String>);

impl Parent {
    fn listen() -> Self {
        let (send, lines) = mpsc::unbounded_channel();
        // A thread, because what this process measures may be stuck in a call that no task
        // interrupts.
        thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                let _served = send.send(line);
            }
            end();
        });
        Self(lines)
    }

    async fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let line = self.0.recv().await.ok_or_else(gone)?;
        // The line has secrets in it, and the error may quote it.
        serde_json::from_str(&line)
            .map_err(|_| Failure::new("protocol", "the standard input is not that of a contender"))
    }

    /// Says that it could begin, and waits until it may.
    async fn window(&mut self) -> Result<Window, Failure> {
        say(&Ok::<_, Failure>(()))?;
        self.hear().await
    }
}

#[expect(clippy::exit, reason = "nobody is left to tell")]
fn end() {
    process::exit(1);
}

fn say(what: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(&line(what)).and_then(|()| out.flush());
    written.map_err(|_| gone())
}

fn gone() -> Failure {
    Failure::new("gone", "the run that started this contender is gone")
}

fn line(of: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(of).expect("BUG: all keys of maps can be text");
    line.push(b'\n');
    line
}
