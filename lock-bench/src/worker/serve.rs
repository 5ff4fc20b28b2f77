use std::sync::Arc;
use std::time::Duration;

use super::parent::{Parent, say};
use super::protocol::{Order, Part, Said, Work, to_bytes};
use crate::measure::{Recorded, Window};
use crate::subject::{Failure, UNSUPPORTED};
use crate::target::{Openers, Runner};
use crate::workloads::{HeldLocks, Job};

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
    let opened = parent.unless_gone(open(openers, &order)).await;
    let done = match opened {
        Ok(runner) => obey(&mut parent, &runner, order.work).await,
        Err(failure) => Err(failure),
    };
    match done {
        Ok(()) => Ok(()),
        Err(failure) => say(&Said::failed(&failure), &[]),
    }
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

async fn obey(parent: &mut Parent, runner: &Runner, work: Work) -> Result<(), Failure> {
    match work {
        Work::Contend(job) => contend(parent, runner, job).await,
        Work::Footprint(job) => footprint(parent, runner, job).await,
        Work::Hold { name, ttl } => hold(parent, runner, name, ttl).await,
    }
}

async fn contend(parent: &mut Parent, runner: &Runner, job: Job) -> Result<(), Failure> {
    say(&Said::Ready, &[])?;
    let window: Window = parent.hear().await?;
    let recorded = parent.unless_gone(runner.contend(job, window)).await?;
    done(runner, recorded).await
}

async fn footprint(parent: &mut Parent, runner: &Runner, job: Job) -> Result<(), Failure> {
    let locks = runner.locks().map(Arc::clone);
    let locks = locks.ok_or_else(|| Failure::new(UNSUPPORTED, "not locks of polylock"))?;
    let held = parent.unless_gone(HeldLocks::acquire(locks, job)).await?;
    say(&Said::Ready, &[])?;
    let window: Window = parent.hear().await?;
    let recorded = parent.unless_gone(held.measure(window)).await?;
    done(runner, recorded).await
}

async fn done(runner: &Runner, recorded: Recorded) -> Result<(), Failure> {
    runner.close().await;
    let (spans, bytes) = (recorded.spans.len(), to_bytes(&recorded.spans));
    let recorded = Box::new(recorded);
    say(&Said::Done { recorded, spans }, &bytes)
}

async fn hold(
    parent: &mut Parent,
    runner: &Runner,
    name: String,
    ttl: Duration,
) -> Result<(), Failure> {
    let taken = parent.unless_gone(runner.take(name, ttl, FREE)).await?;
    let held = taken.ok_or_else(|| Failure::new("contended", "a lock of its own is taken"))?;
    let token = held.token();
    say(&Said::Held { token }, &[])?;
    // Ends by the kill, or with the parent.
    parent
        .unless_gone(std::future::pending::<Result<(), _>>())
        .await
}

/// A wait for a lock that nobody else knows.
const FREE: Duration = Duration::from_secs(10);
