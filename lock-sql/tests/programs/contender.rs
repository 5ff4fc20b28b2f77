//! A process that takes locks, to be killed, starved and counted.
//!
//! `sqlite-contender count DATABASE FILE ROUNDS` adds one to the number in FILE under a lock,
//! `churn DATABASE DIRECTORY` takes locks until it is killed, and `fill DATABASE` until an error.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use lock_core::prelude::*;
use lock_sql::Sqlite;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["count", database, file, rounds] => {
            count(database, Path::new(file), rounds.parse()?).await
        }
        ["churn", database, directory] => churn(database, Path::new(directory)).await,
        ["fill", database] => fill(database).await,
        _ => Err("unknown arguments".into()),
    }
}

async fn count(database: &str, file: &Path, rounds: u32) -> Outcome {
    let locks = Sqlite::open(database).await?;
    for _ in 0..rounds {
        let guard = locks.lock("counter").await?;
        let inside = Inside::enter(file)?;
        let number: u64 = fs::read_to_string(file)?.trim().parse()?;
        // Others get a chance to do the same now, if nothing stops them.
        tokio::task::yield_now().await;
        fs::write(file, (number + 1).to_string())?;
        append(&file.with_extension("tokens"), guard.fencing_token())?;
        drop(inside);
        guard.release().await?;
    }
    Ok(())
}

/// A file that only one process can have made.
struct Inside(std::path::PathBuf);

impl Inside {
    fn enter(file: &Path) -> Outcome<Self> {
        let path = file.with_extension("inside");
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        made.map_err(|e| format!("somebody else is inside: {e}"))?;
        Ok(Self(path))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("the file is there until it is left");
    }
}

/// Takes the locks `0` to `3` in turns, and ends each in another way.
async fn churn(database: &str, directory: &Path) -> Outcome {
    let locks = Sqlite::open(database).await?;
    for round in std::process::id().. {
        let key = (round % 4).to_string();
        let request = locks.request(key.as_str()).ttl(Duration::from_secs(1));
        let patience = Duration::from_millis(u64::from(round % 7) * 10);
        let Ok(guard) = tokio::time::timeout(patience, request.acquire()).await else {
            continue;
        };
        let guard = match guard {
            Ok(guard) => guard,
            Err(error) if error.kind() == ErrorKind::Contended => continue,
            Err(error) => return Err(error.into()),
        };
        append(&directory.join(&key), guard.fencing_token())?;
        match round % 5 {
            // On a busy machine a fifth of a second may be too short for it.
            0 => drop(guard.renew().await),
            1 => guard.abandon(),
            2 => drop(guard),
            _ => drop(guard.release().await?),
        }
    }
    Ok(())
}

/// Takes lock after lock and keeps them; prints how many, and the error that ends it.
async fn fill(database: &str) -> Outcome {
    let mut held = Vec::new();
    let error = match Sqlite::open(database).await {
        Ok(locks) => take_all(&locks, &mut held).await,
        Err(error) => error,
    };
    let held = held.iter().filter(|guard| guard.is_held()).count();
    let line = format!("{held} {:?} {error}\n", error.kind());
    Ok(std::io::stdout().write_all(line.as_bytes())?)
}

async fn take_all(locks: &Sqlite, held: &mut Vec<LockGuard>) -> lock_core::Error {
    loop {
        match locks.lock(format!("fill {:06}", held.len())).await {
            Ok(guard) => held.push(guard),
            Err(error) => return error,
        }
    }
}

fn append(path: &Path, line: Option<impl std::fmt::Display>) -> Outcome {
    let line = line.ok_or("a guard without a token")?;
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    Ok(file.write_all(format!("{line}\n").as_bytes())?)
}
