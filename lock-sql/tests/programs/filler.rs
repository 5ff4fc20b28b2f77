//! A process that takes lock after lock of a database and keeps them, until an error ends it: it prints
//! how many it held, and the error.

use std::error::Error;
use std::io::Write as _;

use polylock_core::prelude::*;
use polylock_sql::Sqlite;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = std::env::args().nth(1).ok_or("no database")?;
    let mut held = Vec::new();
    let error = match Sqlite::open(database).await {
        Ok(locks) => take_all(&locks, &mut held).await,
        Err(error) => error,
    };
    let held = held.iter().filter(|guard| guard.is_held()).count();
    let line = format!("{held} {:?} {error}\n", error.kind());
    Ok(std::io::stdout().write_all(line.as_bytes())?)
}

async fn take_all(locks: &Sqlite, held: &mut Vec<LockGuard>) -> polylock_core::Error {
    loop {
        match locks.lock(format!("fill {:06}", held.len())).await {
            Ok(guard) => held.push(guard),
            Err(error) => return error,
        }
    }
}
