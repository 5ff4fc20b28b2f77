use std::future::pending;
use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;
use std::{process, thread};

use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::{Order, Part, Said, Work, line};
use crate::measure::{Recorded, Window};
use crate::subject::{Failure, UNSUPPORTED};
use crate::target::{Openers, Runner};
use crate::workloads::HeldLocks;

/// Is a contender: reads what it has to do from the standard input, does it, and writes what came
/// out to the standard output. Ends with its parent, and the process with it.
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
    let order: Order = parent.hear().await?;
    match obey(&mut parent, openers, order).await {
        Ok(()) => Ok(()),
        Err(failure) => say(&Said::Failed(failure)),
    }
}

async fn obey(parent: &mut Parent, openers: &Openers, order: Order) -> Result<(), Failure> {
    let runner = parent.unless_gone(open(openers, &order)).await?;
    let recorded = match order.work {
        Work::Contend(job) => {
            let window = parent.window().await?;
            parent.unless_gone(runner.contend(job, window)).await?
        }
        Work::Footprint(job) => {
            let locks = runner.locks().map(Arc::clone);
            let locks = locks.ok_or_else(|| Failure::new(UNSUPPORTED, "not locks of polylock"))?;
            let held = parent.unless_gone(HeldLocks::acquire(locks, job)).await?;
            let window = parent.window().await?;
            parent.unless_gone(held.measure(window)).await?
        }
        Work::Hold { name, ttl } => {
            let taken = parent.unless_gone(runner.take(name, ttl, FREE)).await?;
            let held =
                taken.ok_or_else(|| Failure::new("contended", "a lock of its own is taken"))?;
            say(&Said::Held { token: held.token })?;
            // Ends by the kill, or with the parent.
            parent.unless_gone(pending::<Result<Recorded, _>>()).await?
        }
    };
    runner.close().await;
    say(&Said::Done(Box::new(recorded)))
}

async fn open(openers: &Openers, order: &Order) -> Result<Runner, Failure> {
    let (opener, url) = (openers.opener(&order.url)?, &order.url);
    match order.part {
        Part::Whole => Ok(opener.open(url).await?.runner),
        Part::Bare => {
            let bare = opener.bare(url, order.run).await?;
            let bare = bare.map(|bare| bare.runner);
            bare.ok_or_else(|| Failure::new("protocol", "there are no bare commands"))
        }
    }
}

/// A wait for a lock that nobody else knows.
const FREE: Duration = Duration::from_secs(10);

/// The run that has started this process, and ends it by closing its standard input.
struct Parent(mpsc::UnboundedReceiver<String>);

impl Parent {
    fn listen() -> Self {
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
        Self(lines)
    }

    async fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let line = self.0.recv().await.ok_or_else(gone)?;
        // The line has secrets in it, and the error may quote it.
        serde_json::from_str(&line)
            .map_err(|_| Failure::new("protocol", "the standard input is not that of a contender"))
    }

    async fn window(&mut self) -> Result<Window, Failure> {
        say(&Said::Ready)?;
        self.hear().await
    }

    /// Does something until the parent is gone.
    async fn unless_gone<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            done = work => done,
            _said = self.0.recv() => Err(gone()),
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

fn say(said: &Said) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(&line(said)).and_then(|()| out.flush());
    written.map_err(|_| gone())
}

fn gone() -> Failure {
    Failure::new("gone", "the run that started this contender is gone")
}
