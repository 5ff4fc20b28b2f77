use std::future::pending;
use std::io::{self, BufRead as _, Write as _};
use std::time::Duration;
use std::{process, thread};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::{Order, Work, line};
use crate::measure::{Recorded, Window};
use crate::subject::{Failure, UNSUPPORTED};
use crate::target::Openers;
use crate::workloads::HeldLocks;

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

async fn obey(parent: &mut Parent, openers: &Openers, order: Order) -> Result<Recorded, Failure> {
    let target = openers.target("contender", order.url)?;
    let opened = match order.bare {
        None => target.open().await?,
        Some(run) => {
            let bare = target.bare(run).await?;
            bare.ok_or_else(|| Failure::new("protocol", "there are no bare commands"))?
        }
    };
    let recorded = match order.work {
        Work::Contend(job) => {
            let window = parent.window().await?;
            opened.contend(job, window).await?
        }
        Work::Footprint(job) => {
            let locks = opened.locks.clone();
            let locks = locks.ok_or_else(|| Failure::new(UNSUPPORTED, "not locks of polylock"))?;
            let held = HeldLocks::acquire(locks, job).await?;
            let window = parent.window().await?;
            held.measure(window).await?
        }
        Work::Hold { name, ttl } => {
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
