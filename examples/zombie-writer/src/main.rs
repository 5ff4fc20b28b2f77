//! A zombie writer: a process that holds the lock is stopped for longer than its lease, and writes
//! after somebody else has held the lock.
//!
//! ```console
//! $ cargo run -p zombie-writer
//! $ cargo run -p zombie-writer --features polylock/redis -- redis://localhost
//! ```
//!
//! The process checks that it holds the lock, is stopped by SIGSTOP, and does not check again: no
//! lock can do anything about that. What can is the place that it writes to, if it keeps the largest
//! fencing token that it has seen. One page of the store takes every write and loses the text of the
//! second holder; the other takes a token with each write, and refuses the late one.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use polylock::FencingToken;
use polylock::prelude::*;
use polylock::sql::transaction::{Fence, WriteError};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection, query_scalar, raw_sql};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::time::timeout;

/// A lease below 5 s is for demonstrations: a pause of the machine or the network would cost it.
const TTL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(20);
const KEY: &str = "page/front";
const FIRST: &str = "written by the first holder";
const SECOND: &str = "written by the second holder";

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [role, url, store] = &args[..]
        && role == "zombie"
    {
        return be_the_zombie(url, store.as_ref()).await;
    }
    let directory = tempfile::tempdir()?;
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    let store = directory.path().join("store.db");
    write_late(args.first().unwrap_or(&file), &store).await
}

/// Acquires the lock, checks it, is stopped, and writes.
async fn be_the_zombie(url: &str, file: &Path) -> Result<()> {
    let mut store = Store::open(file).await?;
    let locks = polylock::connect(url).await?;
    let guard = locks.request(KEY).ttl(TTL).acquire().await?;
    let token = guard.fencing_token().context("no fencing tokens")?;
    guard.ensure_held()?;
    println!("{token}");
    // Here it is stopped, together with the thread that renews its lease.
    io::stdin().read_line(&mut String::new())?;

    // A careful program checks `is_held` here, which narrows the window and does not close it.
    store.write(FIRST).await?;
    let refused = match store.write_if_newer(token, FIRST).await {
        Err(WriteError::Stale(stale)) => stale.to_string(),
        written => written.map(|rows| format!("no, {rows} row written"))?,
    };
    println!("{}", guard.is_held());
    println!("{refused}");
    Ok(())
}

/// Stops a holder, acquires its lock, writes, lets it continue, and reads what is in the store.
async fn write_late(url: &str, file: &Path) -> Result<()> {
    let mut store = Store::open(file).await?;
    let mut copy = Command::new(std::env::current_exe()?);
    copy.args(["zombie", url]).arg(file).kill_on_drop(true);
    let mut zombie = copy.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut answers = BufReader::new(zombie.stdout.take().context("no output")?);
    let first: u64 = answer(&mut answers).await?.parse()?;
    let pid = zombie.id().context("the process has ended")?;
    let pid = Pid::from_raw(i32::try_from(pid)?).context("no process has this id")?;

    kill_process(pid, Signal::STOP)?;
    let stopped = Instant::now();
    let locks = polylock::connect(url).await?;
    let request = locks.request(KEY).ttl(TTL).wait(Wait::AtMost(TIMEOUT));
    let guard = request.acquire().await?;
    let waited = stopped.elapsed();
    let second = guard.fencing_token().context("no fencing tokens")?;
    store.write(SECOND).await?;
    store.write_if_newer(second, SECOND).await?;

    kill_process(pid, Signal::CONT)?;
    let mut input = zombie.stdin.take().context("no input")?;
    input.write_all(b"go on\n").await?;
    let held = answer(&mut answers).await?;
    let refused = answer(&mut answers).await?;
    guard.release().await?;
    let (plain, fenced) = (store.read("plain").await?, store.read("fenced").await?);
    println!("first holder         token {first}, stopped");
    println!("second holder        token {second}, after {waited:.1?}");
    println!("held when it wakes   {held}");
    println!("page without token   {plain}");
    println!("page with token      {fenced}");
    println!("refused              {refused}");
    ensure!(first < second.value(), "the token did not increase");
    ensure!(held == "false", "the first holder believed in its lock");
    let pages = [&*plain, &*fenced];
    ensure!(pages == [FIRST, SECOND], "it went differently");
    Ok(())
}

async fn answer(answers: &mut BufReader<ChildStdout>) -> Result<String> {
    let mut line = String::new();
    let bytes = timeout(TIMEOUT, answers.read_line(&mut line)).await??;
    ensure!(bytes > 0, "the process has ended");
    Ok(line.trim_end().to_owned())
}

/// Two pages in a SQLite file, which both holders write to.
struct Store(SqliteConnection);

impl Store {
    async fn open(file: &Path) -> Result<Self> {
        let options = SqliteConnectOptions::new().filename(file);
        let options = options.create_if_missing(true).busy_timeout(TIMEOUT);
        let mut connection = options.connect().await?;
        let pages = "CREATE TABLE IF NOT EXISTS page (name TEXT PRIMARY KEY, text TEXT NOT NULL);
                     INSERT OR IGNORE INTO page VALUES ('plain', ''), ('fenced', '')";
        raw_sql(pages).execute(&mut connection).await?;
        Ok(Self(connection))
    }

    /// The last write wins.
    async fn write(&mut self, text: &str) -> Result<(), sqlx::Error> {
        let update = sqlx::query("UPDATE page SET text = ? WHERE name = 'plain'").bind(text);
        update.execute(&mut self.0).await.map(drop)
    }

    /// The write of the last holder wins.
    async fn write_if_newer(&mut self, token: FencingToken, text: &str) -> Result<u64, WriteError> {
        let update = sqlx::query("UPDATE page SET text = ? WHERE name = 'fenced'");
        let update = update.bind(text.to_owned());
        let tx = self.0.begin_with("BEGIN IMMEDIATE").await;
        let mut tx = tx.map_err(WriteError::Sql)?;
        // A stale token is an error, and the transaction is rolled back when it is dropped.
        let fence = Fence::new();
        let rows = fence.write_if_newer(&mut *tx, KEY, token, update).await?;
        tx.commit().await.map_err(WriteError::Sql)?;
        Ok(rows)
    }

    async fn read(&mut self, page: &str) -> Result<String> {
        let text = query_scalar("SELECT text FROM page WHERE name = ?").bind(page);
        Ok(text.fetch_one(&mut self.0).await?)
    }
}
