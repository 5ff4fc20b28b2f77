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
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use polylock::FencingToken;
use polylock::prelude::*;
use polylock::sql::transaction::{Fence, WriteError};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection, query, query_as, raw_sql};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

/// A lease below 5 s is for demonstrations: a pause of the machine or the network would cost it.
const TTL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(40);
const KEY: &str = "page/front";
const FIRST: &str = "written by the first holder";
const SECOND: &str = "written by the second holder";

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [url, store] = &args[..] {
        return be_the_zombie(url, store.as_ref()).await;
    }
    let directory = tempfile::tempdir()?;
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    let store = directory.path().join("store.db");
    let url = args.first().unwrap_or(&file);
    timeout(TIMEOUT, write_late(url, &store)).await?
}

/// Acquires the lock, checks it, is stopped, and writes.
async fn be_the_zombie(url: &str, file: &Path) -> Result<()> {
    let mut store = open(file).await?;
    let locks = polylock::connect(url).await?;
    let guard = locks.request(KEY).ttl(TTL).acquire().await?;
    let token = guard.fencing_token().context("no fencing tokens")?;
    guard.ensure_held()?;
    println!("first holder         token {token}, stopped");
    // Here it is stopped, together with the thread that renews its lease.
    io::stdin().read_line(&mut String::new())?;

    // A careful program checks `is_held` here, which narrows the window and does not close it.
    write(&mut store, FIRST).await?;
    let Err(WriteError::Stale(stale)) = write_if_newer(&mut store, token, FIRST).await else {
        bail!("the late write was not refused");
    };
    println!("held when it wakes   {}", guard.is_held());
    println!("refused              {stale}");
    ensure!(!guard.is_held(), "the first holder believed in its lock");
    Ok(())
}

/// Stops a holder, acquires its lock, writes, lets it continue, and reads what is in the store.
async fn write_late(url: &str, file: &Path) -> Result<()> {
    let mut store = open(file).await?;
    let mut zombie = Command::new(std::env::current_exe()?);
    zombie.arg(url).arg(file).kill_on_drop(true);
    zombie.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut zombie = zombie.spawn()?;
    let mut output = BufReader::new(zombie.stdout.take().context("no output")?);
    let mut before = String::new();
    output.read_line(&mut before).await?;
    print!("{before}");
    let pid = zombie.id().context("the process has ended")?;
    let pid = Pid::from_raw(i32::try_from(pid)?).context("no process has this id")?;

    kill_process(pid, Signal::STOP)?;
    let locks = polylock::connect(url).await?;
    let guard = locks.request(KEY).ttl(TTL).acquire().await?;
    let token = guard.fencing_token().context("no fencing tokens")?;
    println!("second holder        token {token}");
    write(&mut store, SECOND).await?;
    write_if_newer(&mut store, token, SECOND).await?;

    kill_process(pid, Signal::CONT)?;
    let mut input = zombie.stdin.take().context("no input")?;
    input.write_all(b"go on\n").await?;
    let mut after = String::new();
    output.read_to_string(&mut after).await?;
    print!("{after}");
    ensure!(zombie.wait().await?.success(), "the first holder failed");
    guard.release().await?;
    let select = query_as("SELECT plain, fenced FROM pages");
    let (plain, fenced): (String, String) = select.fetch_one(&mut store).await?;
    println!("page without token   {plain}");
    println!("page with token      {fenced}");
    ensure!(plain == FIRST && fenced == SECOND, "it went differently");
    Ok(())
}

/// A SQLite file with two pages, which both holders write to.
async fn open(file: &Path) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new().filename(file);
    let options = options.create_if_missing(true).busy_timeout(TIMEOUT);
    let mut store = options.connect().await?;
    let pages = "CREATE TABLE IF NOT EXISTS pages (id INT PRIMARY KEY, plain TEXT, fenced TEXT);
                 INSERT OR IGNORE INTO pages VALUES (1, '', '')";
    raw_sql(pages).execute(&mut store).await?;
    Ok(store)
}

/// The last write wins.
async fn write(store: &mut SqliteConnection, text: &str) -> Result<()> {
    let update = query("UPDATE pages SET plain = ?");
    update.bind(text).execute(store).await?;
    Ok(())
}

/// The write of the last holder wins.
async fn write_if_newer(
    store: &mut SqliteConnection,
    token: FencingToken,
    text: &'static str,
) -> Result<(), WriteError> {
    let update = query("UPDATE pages SET fenced = ?").bind(text);
    let tx = store.begin_with("BEGIN IMMEDIATE").await;
    let mut tx = tx.map_err(WriteError::Sql)?;
    // A stale token is an error, and the transaction is rolled back when it is dropped.
    let fence = Fence::new();
    fence.write_if_newer(&mut *tx, KEY, token, update).await?;
    tx.commit().await.map_err(WriteError::Sql)
}
