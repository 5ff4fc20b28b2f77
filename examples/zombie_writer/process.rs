//! The process that is stopped, seen from the one that stops it.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::{PATIENCE, Result};

/// The other process. It is killed when the value is dropped, and ends by itself if this process
/// is killed while it runs.
pub(crate) struct Zombie {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Zombie {
    pub(crate) fn start(backend: &str, store: &Path) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(COPY)
            .env("ZOMBIE_BACKEND", backend)
            .env("ZOMBIE_STORE", store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self {
            input: child.stdin.take().ok_or("no input")?,
            output: BufReader::new(child.stdout.take().ok_or("no output")?),
            child,
        })
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().map(i32::try_from).transpose()?;
        let pid = id.and_then(Pid::from_raw).ok_or("the process has ended")?;
        Ok(kill_process(pid, signal)?)
    }

    pub(crate) async fn tell(&mut self, line: &str) -> Result<()> {
        Ok(self.input.write_all(format!("{line}\n").as_bytes()).await?)
    }

    /// The next thing that it says. A test runner says things of its own in between.
    pub(crate) async fn hears<T: DeserializeOwned>(&mut self) -> Result<T> {
        loop {
            let mut line = String::new();
            if timeout(PATIENCE, self.output.read_line(&mut line)).await?? == 0 {
                return Err("the process has ended".into());
            }
            if let Some(at) = line.find('{') {
                return Ok(serde_json::from_str(&line[at..])?);
            }
        }
    }
}

#[cfg(not(test))]
const COPY: &[&str] = &[];
/// This program is the test runner then, and the copy one of its tests.
#[cfg(test)]
const COPY: &[&str] = &["--exact", "tests::the_zombie", "--ignored"];
