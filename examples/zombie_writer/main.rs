//! A zombie writer: a process that has the lock is stopped for longer than its lease, and writes
//! when somebody else has had the lock already.
//!
//! ```console
//! $ cargo run -p polylock-examples --example zombie_writer
//! $ cargo run -p polylock-examples --example zombie_writer -- --backend redis://localhost
//! ```
//!
//! The process looks whether it holds the lock, is stopped by SIGSTOP, and does not look again: no
//! lock can do anything about that. What can is the place that it writes to, which keeps the
//! largest fencing token that it has seen. One page of the store asks for the token, the other does
//! not, and loses the second holder's text to the late write.
//!
//! Exits with 0 if the late write won where nobody asked for its token, was refused where somebody
//! did, and the lock of the stopped process was lost by the time it woke.

mod process;
mod store;

use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use lock_sql::transaction::WriteError;
use polylock::prelude::*;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::process::Zombie;
use crate::store::Store;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// A holder that is stopped beyond its lease writes late, with a token and without.
#[derive(Parser)]
struct Options {
    /// Where the locks are; a file in a temporary directory by default.
    #[arg(long, value_name = "URL", env = "ZOMBIE_BACKEND")]
    backend: Option<String>,
    /// Makes this process the one that is stopped: the SQLite file that it writes to.
    #[arg(long, value_name = "FILE", env = "ZOMBIE_STORE", hide = true)]
    store: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    if let (Some(backend), Some(store)) = (&options.backend, &options.store) {
        return be_the_zombie(backend, store).await;
    }
    let directory = tempfile::tempdir()?;
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    let backend = options.backend.unwrap_or(file);
    let story = write_late(&backend, &directory.path().join("store.db")).await?;
    writeln!(io::stdout().lock(), "{story}")?;
    story.check()
}

/// A lease below 5 s is for demonstrations: a pause of the machine or the network would cost it.
const TTL: Duration = Duration::from_secs(1);
const KEY: &str = "page/front";
const PATIENCE: Duration = Duration::from_secs(20);

/// Stops a holder, takes its lock over, writes, lets it go on, and looks at what is in the store.
async fn write_late(backend: &str, file: &Path) -> Result<Story> {
    let mut store = Store::open(file).await?;
    let mut zombie = Zombie::start(backend, file)?;
    let first: Taken = zombie.hears().await?;

    zombie.signal(Signal::STOP)?;
    let stopped = Instant::now();
    let locks = polylock::connect(backend).await?;
    let second = locks.request(KEY).ttl(TTL).wait(Wait::AtMost(PATIENCE));
    let second = second.acquire().await?;
    let takeover = stopped.elapsed();
    let token = second.fencing_token().ok_or("this backend has no tokens")?;
    store.write(SECOND).await?;
    store.write_if_newer(token, SECOND).await?;

    zombie.signal(Signal::CONT)?;
    zombie.tell("go on").await?;
    let woken: Woken = zombie.hears().await?;
    second.release().await?;
    locks.shutdown(PATIENCE).await;
    Ok(Story {
        first: first.token,
        second: token.value(),
        takeover,
        woken,
        plain: store.read("plain").await?,
        fenced: store.read("fenced").await?,
    })
}

const FIRST: &str = "written by the first holder";
const SECOND: &str = "written by the second holder";

/// Takes the lock, looks, is stopped, and writes.
async fn be_the_zombie(backend: &str, file: &Path) -> Result<()> {
    let mut store = Store::open(file).await?;
    let locks = polylock::connect(backend).await?;
    let guard = locks.request(KEY).ttl(TTL).acquire().await?;
    let token = guard.fencing_token().ok_or("this backend has no tokens")?;
    guard.ensure_held()?;
    tell(&Taken {
        token: token.value(),
    })?;
    // Here it is stopped, together with the thread that renews its lease.
    io::stdin().lock().read_line(&mut String::new())?;

    // A careful program asks `is_held` here, which narrows the window and does not close it.
    store.write(FIRST).await?;
    let refused = match store.write_if_newer(token, FIRST).await {
        Err(WriteError::Stale(stale)) => Some(stale.to_string()),
        written => written.map(|_| None)?,
    };
    tell(&Woken {
        is_held: guard.is_held(),
        refused,
    })
}

/// What the process says when it has the lock.
#[derive(Deserialize, Serialize)]
struct Taken {
    token: u64,
}

/// What it says when it has been stopped and has written.
#[derive(Debug, Deserialize, Serialize)]
struct Woken {
    is_held: bool,
    /// How the store refused the write that showed its token.
    refused: Option<String>,
}

fn tell(what: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(what)?;
    Ok(writeln!(io::stdout().lock(), "{line}")?)
}

/// What happened.
#[derive(Debug)]
struct Story {
    first: u64,
    second: u64,
    takeover: Duration,
    woken: Woken,
    /// What is on the page that asks for no token.
    plain: String,
    /// What is on the page that does.
    fenced: String,
}

impl Story {
    fn check(&self) -> Result<()> {
        let token_grew = self.first < self.second;
        let lost = !self.woken.is_held && self.woken.refused.is_some();
        if token_grew && lost && self.plain == FIRST && self.fenced == SECOND {
            return Ok(());
        }
        Err(format!("it went differently: {self:?}").into())
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "the first holder, token {}, was stopped; the second, token {}, was in after {} ms",
            self.first,
            self.second,
            self.takeover.as_millis()
        )?;
        let refused = self.woken.refused.as_deref().unwrap_or("not refused");
        writeln!(
            f,
            "is_held() of the first one when it woke: {}",
            self.woken.is_held
        )?;
        writeln!(f, "without a token, the page is {:?}", self.plain)?;
        write!(
            f,
            "with the token, the page is {:?}; refused: {refused}",
            self.fenced
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "a process that another test starts"]
    fn the_zombie() {
        let options = Options::parse_from(["zombie_writer"]);
        let (backend, store) = (options.backend.unwrap(), options.store.unwrap());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(be_the_zombie(&backend, &store)).unwrap();
    }

    #[tokio::test]
    async fn the_late_write_wins_where_nobody_asks_for_its_token() {
        let directory = tempfile::tempdir().unwrap();
        let locks = format!("sqlite:{}", directory.path().join("locks.db").display());
        let story = write_late(&locks, &directory.path().join("store.db")).await;
        let story = story.unwrap();
        let (old, new) = (story.first, story.second);
        assert!(old < new, "{story}");
        assert!(!story.woken.is_held);
        assert_eq!(story.plain, FIRST);
        assert_eq!(story.fenced, SECOND);
        let refused = story.woken.refused.as_deref();
        let stale = format!("\"page/front\" has seen token {new}, {old} is stale");
        assert_eq!(refused, Some(&*stale));
        story.check().unwrap();
    }

    #[tokio::test]
    async fn locks_that_do_not_meet_are_found_out() {
        let directory = tempfile::tempdir().unwrap();
        // Each process has a store of its own.
        let story = write_late("memory:zombie", &directory.path().join("store.db")).await;
        let error = story.unwrap().check().unwrap_err();
        assert!(error.to_string().contains("differently"), "{error}");
    }
}
