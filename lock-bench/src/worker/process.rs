use std::env;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::{ARGUMENT, Order, Work, line};
use crate::clock;
use crate::measure::{Recorded, Window};
use crate::subject::Failure;
use crate::target::Target;

/// A contender that is a process. It ends with this value.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one and tells it what to do; for the bare commands of the run with this number, if
    /// there is one.
    pub(crate) async fn start(
        target: &Target,
        bare: Option<u64>,
        work: Work,
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
        let url = target.url.clone();
        process.say(&Order { url, bare, work }).await?;
        Ok(process)
    }

    /// Waits until it has started, and returns what it says then.
    pub(crate) async fn started<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        self.hear(START_TIMEOUT).await
    }

    pub(crate) async fn begin(&mut self, window: Window) -> Result<(), Failure> {
        self.say(&window).await
    }

    /// Waits until it is done, which it is so long after the window.
    pub(crate) async fn recorded(
        mut self,
        window: Window,
        after: Duration,
    ) -> Result<Recorded, Failure> {
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

    async fn say(&mut self, what: &(impl Serialize + Sync)) -> Result<(), Failure> {
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
