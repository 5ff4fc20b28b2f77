use std::future::Future;
use std::io::{self, BufRead as _, Write as _};
use std::process;
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::protocol::Said;
use crate::subject::Failure;

/// Who has started this process, and ends it by closing its standard input.
pub(super) struct Parent {
    lines: mpsc::UnboundedReceiver<String>,
}

impl Parent {
    pub(super) fn listen() -> Self {
        let (send, lines) = mpsc::unbounded_channel();
        // A thread, because the read of a runtime would keep that from ending.
        thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                if send.send(line).is_err() {
                    return;
                }
            }
            drop(send);
            end_at_last();
        });
        Self { lines }
    }

    pub(super) async fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let line = self.lines.recv().await.ok_or_else(gone)?;
        // The line has secrets in it, and the error may quote it.
        serde_json::from_str(&line)
            .map_err(|_| Failure::new("protocol", "the standard input is not that of a contender"))
    }

    /// Does something until the parent is gone.
    pub(super) async fn unless_gone<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            done = work => done,
            _said = self.lines.recv() => Err(gone()),
        }
    }
}

/// Ends a process without a parent that has not ended by itself: what it measures may be stuck
/// in a call that no task interrupts.
#[expect(clippy::exit, reason = "nobody is left to tell")]
fn end_at_last() {
    thread::sleep(ENDS_WITHIN);
    process::exit(1);
}

const ENDS_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn say(said: &Said, bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out
        .write_all(&said.line())
        .and_then(|()| out.write_all(bytes))
        .and_then(|()| out.flush());
    written.map_err(|_| gone())
}

fn gone() -> Failure {
    Failure::new("gone", "whoever started this contender is gone")
}
