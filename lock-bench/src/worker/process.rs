use std::env;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{ARGUMENT, Order, Part, Said, Work, line};
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
    /// Starts one and tells it what to do.
    pub(crate) async fn start(
        target: &Target,
        (run, part): (u64, Part),
        work: Work,
    ) -> Result<Self, Failure> {
        let mut command = match &target.worker {
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args);
                command
            }
            None => {
                let program = env::current_exe().map_err(|e| Failure::of(PROCESSES, &e))?;
                let mut command = Command::new(program);
                command.arg(ARGUMENT);
                command
            }
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|e| Failure::of(PROCESSES, &e))?;
        let input = child.stdin.take().expect("BUG: it is piped");
        let output = child.stdout.take().expect("BUG: it is piped");
        let mut process = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        let url = target.url.clone();
        let order = Order {
            url,
            part,
            run,
            work,
        };
        process.say(&order).await?;
        Ok(process)
    }

    /// Waits until it could begin.
    pub(crate) async fn ready(&mut self) -> Result<(), Failure> {
        let ready = self.hear(STARTS_WITHIN, |said| {
            matches!(said, Said::Ready).then_some(())
        });
        ready.await
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
        let limit = clock::until(window.end) + after + ENDS_WITHIN;
        let recorded = self.hear(limit, |said| match said {
            Said::Done(recorded) => Some(*recorded),
            _ => None,
        });
        let recorded = recorded.await?;
        // It ends by itself, and is killed if it does not.
        let _ended = tokio::time::timeout(ENDS_WITHIN, self.child.wait()).await;
        Ok(recorded)
    }

    /// Waits until it has its lock, and returns the token.
    pub(crate) async fn held(&mut self) -> Result<Option<u64>, Failure> {
        let token = self.hear(STARTS_WITHIN, |said| match said {
            Said::Held { token } => Some(token),
            _ => None,
        });
        token.await
    }

    /// Kills it, without a chance to give anything back; returns the time before that.
    pub(crate) async fn kill(mut self) -> Result<u64, Failure> {
        let before = clock::now();
        let killed = self.child.start_kill();
        killed.map_err(|e| Failure::of(PROCESSES, &e))?;
        let ended = self.child.wait().await;
        ended.map_err(|e| Failure::of(PROCESSES, &e))?;
        Ok(before)
    }

    async fn say(&mut self, what: &(impl Serialize + Sync)) -> Result<(), Failure> {
        let written = self.input.write_all(&line(what)).await;
        written.map_err(|_| silent())
    }

    async fn hear<T>(
        &mut self,
        limit: Duration,
        expected: fn(Said) -> Option<T>,
    ) -> Result<T, Failure> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        match tokio::time::timeout(limit, read).await {
            Err(_) => return Err(silent()),
            Ok(Err(_) | Ok(0)) => return Err(self.gone().await),
            Ok(Ok(_)) => {}
        }
        match serde_json::from_str(&line) {
            Ok(Said::Failed(failure)) => Err(failure),
            Ok(said) => expected(said).ok_or_else(strange),
            Err(_) => Err(strange()),
        }
    }

    async fn gone(&mut self) -> Failure {
        let ended = tokio::time::timeout(ENDS_WITHIN, self.child.wait()).await;
        match ended {
            Ok(Ok(status)) => Failure::new(
                PROCESSES,
                format!("a contender ended without an answer: {status}"),
            ),
            _ => silent(),
        }
    }
}

/// Kind of what goes wrong with contenders themselves.
pub(crate) const PROCESSES: &str = "processes";

/// Many start at a time on few processors.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// After the end of the window; contenders that are stuck give up earlier by themselves.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

fn silent() -> Failure {
    Failure::new(PROCESSES, "a contender does not answer")
}

fn strange() -> Failure {
    let message = "a contender says something else; is it the same program?";
    Failure::new(PROCESSES, message)
}
