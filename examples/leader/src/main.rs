//! Three instances of a service, one of which leads: it tells the others its address, and another one
//! leads when it is stopped or when its work fails.
//!
//! ```console
//! $ cargo run -p leader
//! $ cargo run -p leader --features polylock/redis -- redis://localhost
//! ```
//!
//! Each instance has a connection of its own, as a process would have. A follower sees who leads, and each
//! term is recorded with its fencing token. `polylock-history` judges the record: at each time there was one
//! leader, and the tokens grew. What happens when a process is killed is in `cron-singleton`.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::{Stream, StreamExt as _};
use polylock::coordination::{Election, Leader, Term};
use polylock::{DistributedLock, Label};
use polylock_history::{Hold, check_holds};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const INSTANCES: usize = 3;
const TTL: Duration = Duration::from_secs(5);
/// What a busy machine may need for an election and a look at it.
const SOON: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    run(url.as_deref().unwrap_or("memory:leader")).await
}

async fn run(url: &str) -> Result<()> {
    let name = format!("leader/{}", std::process::id());
    let record = Record::default();
    let follower = Election::new(polylock::connect(url).await?, &*name)?;
    let mut leaders = pin!(follower.observe());
    let mut instances = Vec::new();
    for n in 0..INSTANCES {
        instances.push(Instance::start(url, &name, n, &record).await?);
    }

    let first = next_leader(&mut leaders, None).await?;
    println!("instance {first} leads at {}", address(first));

    // A deployment stops the leader, which resigns.
    instances[first].task.abort();
    let second = next_leader(&mut leaders, Some(first)).await?;
    println!(
        "instance {first} is stopped, instance {second} leads at {}",
        address(second)
    );

    // The work of the leader fails: it resigns, and stands again after a pause.
    instances[second].failure.notify_one();
    let third = next_leader(&mut leaders, Some(second)).await?;
    println!(
        "instance {second} fails, instance {third} leads at {}",
        address(third)
    );
    ensure!(third != first, "an instance leads that was stopped");
    ensure!(
        *instances[third].election.is_leader().borrow(),
        "it does not know"
    );

    for instance in &instances {
        instance.task.abort();
    }
    let mut leads = instances[third].election.is_leader();
    timeout(SOON, leads.wait_for(|leads| !leads)).await??;
    record.judge()
}

/// One instance of the service.
struct Instance {
    election: Election,
    /// Makes the work of the leader fail.
    failure: Arc<Notify>,
    task: JoinHandle<polylock::Error>,
}

impl Instance {
    async fn start(url: &str, name: &str, number: usize, record: &Record) -> Result<Self> {
        let locks: Arc<dyn DistributedLock> = polylock::connect(url).await?;
        // Instances of one process differ in their note; those of several differ anyway.
        let label = Label::of_this_process().with_note(number.to_string());
        let election = Election::new(locks, name)?.ttl(TTL).label(label);
        let failure = Arc::new(Notify::new());
        let (candidate, record, fails) = (election.clone(), record.clone(), Arc::clone(&failure));
        let task = tokio::spawn(async move {
            let work = |term| work(term, number, record.clone(), Arc::clone(&fails));
            candidate.lead(work).await
        });
        Ok(Self {
            election,
            failure,
            task,
        })
    }
}

/// What the leader does, until it leads no more.
async fn work(term: Term, number: usize, record: Record, failure: Arc<Notify>) -> Result<()> {
    let _at_work = record.begin(&term);
    term.proclaim(address(number)).await?;
    failure.notified().await;
    anyhow::bail!("the disk of instance {number} is full")
}

fn address(number: usize) -> String {
    format!("10.0.0.{number}:9000")
}

/// Waits until the follower sees another leader than `before`, at its address.
async fn next_leader(
    leaders: &mut (impl Stream<Item = Option<Leader>> + Unpin),
    before: Option<usize>,
) -> Result<usize> {
    let seen = async {
        while let Some(leader) = leaders.next().await {
            let Some(Leader {
                label,
                address: Some(seen),
                ..
            }) = leader
            else {
                continue;
            };
            let number = label.note().parse()?;
            ensure!(
                seen == address(number).as_bytes(),
                "the address of another term"
            );
            if Some(number) != before {
                return Ok(number);
            }
        }
        anyhow::bail!("the follower has stopped")
    };
    timeout(SOON, seen).await.context("nobody leads")?
}

/// The terms of all instances.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<Hold>>>);

impl Record {
    fn begin(self, term: &Term) -> AtWork {
        let token = term.fencing_token().value();
        let number = self.terms().len();
        let hold = Hold::open(number as u64, now()).with_token(token);
        self.terms().push(hold);
        AtWork(self, number)
    }

    fn judge(&self) -> Result<()> {
        let terms = self.terms();
        let (count, violations) = (terms.len(), check_holds(terms.iter().copied()));
        let wrong = violations.len();
        println!("{count} terms, {wrong} with two leaders or an old token");
        ensure!(violations.is_empty(), "{violations:?}");
        Ok(())
    }

    fn terms(&self) -> MutexGuard<'_, Vec<Hold>> {
        self.0.lock().expect("nobody panics with it")
    }
}

/// The work of a term; dropped, it has ended.
struct AtWork(Record, usize);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.terms()[self.1].until = now();
    }
}

fn now() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn one_leads_at_each_time() -> anyhow::Result<()> {
        super::run("memory:test").await
    }
}
