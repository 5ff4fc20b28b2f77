//! A red envelope: an amount of money that is split at random among those who come first, each in
//! one transaction of PostgreSQL that holds the lock of the envelope.
//!
//! ```console
//! $ cargo run -p red-envelope
//! $ cargo run -p red-envelope -- postgres://me:secret@localhost/empty
//! ```
//!
//! Without a URL it starts a private PostgreSQL. No single statement draws a share, changes the
//! envelope and pays: a transaction alone reads what another one is about to overwrite, and pays
//! more than there was. The lock is a row of the same database and ends with the transaction, so it
//! cannot be lost while the transaction can still commit, and a commit releases it.
//!
//! `SELECT .. FOR UPDATE` on the envelope would do as well. The lock adds a fencing token to that,
//! for what is written later or elsewhere: `zombie-writer` shows what it refuses.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use lock_testkit::servers::PostgresServer;
use polylock::LockUrl;
use polylock::sql::Schema;
use polylock::sql::transaction::TransactionLocks;
use sqlx::{AssertSqlSafe, PgPool, query, query_as, raw_sql};
use tokio::time::sleep;

const CENTS: i64 = 8888;
const SHARES: i64 = 20;
const GRABBERS: i64 = 40;
/// The time between read and write: a call to another service.
const THINKING: Duration = Duration::from_millis(5);

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(url) => run(&url).await,
        None => run(&PostgresServer::shared().database()).await,
    }
}

async fn run(url: &str) -> Result<()> {
    let db = PgPool::connect(url).await?;
    // The table of the locks; a service creates it in a migration, `lockctl` prints it.
    let locks = AssertSqlSafe(Schema::of(&LockUrl::parse(url)?)?.sql());
    raw_sql(locks).execute(&db).await?;
    let tables = "CREATE TABLE envelope (cents BIGINT, shares BIGINT);
                  CREATE TABLE paid (cents BIGINT CHECK (cents > 0), token BIGINT)";
    raw_sql(tables).execute(&db).await?;

    let (paid, left, _) = open_envelope(&db, false).await?;
    ensure!(paid + left > CENTS, "nothing was paid twice");
    let (paid, left, tokens) = open_envelope(&db, true).await?;
    ensure!((paid, left) == (CENTS, 0), "the lock did not keep the sum");
    ensure!(tokens == SHARES, "two shares have one token");
    Ok(())
}

/// Fills the envelope, and lets everybody grab at once. Returns the cents paid, the cents left, and the number
/// of tokens.
async fn open_envelope(db: &PgPool, with_lock: bool) -> Result<(i64, i64, i64)> {
    raw_sql("TRUNCATE envelope, paid").execute(db).await?;
    let fill = query("INSERT INTO envelope VALUES ($1, $2)");
    fill.bind(CENTS).bind(SHARES).execute(db).await?;
    try_join_all((0..GRABBERS).map(|_| grab(db, with_lock))).await?;
    let select = query_as(
        "SELECT sum(cents)::BIGINT, (SELECT cents FROM envelope), count(DISTINCT token), count(*)
         FROM paid",
    );
    let (paid, left, tokens, shares): (i64, i64, i64, i64) = select.fetch_one(db).await?;
    let lock = if with_lock { "with" } else { "without" };
    println!("{lock} the lock: {paid} of {CENTS} cents paid in {shares} shares, {left} left");
    Ok((paid, left, tokens))
}

/// Draws a share and pays it, in one transaction.
async fn grab(db: &PgPool, with_lock: bool) -> Result<()> {
    let mut tx = db.begin().await?;
    let mut token = 0;
    if with_lock {
        let locks = TransactionLocks::new();
        let lock = locks.acquire_in(&mut *tx, "envelope/1").await?;
        token = i64::try_from(lock.fencing_token().value())?;
    }
    let select = query_as("SELECT cents, shares FROM envelope");
    let (cents, shares): (i64, i64) = select.fetch_one(&mut *tx).await?;
    if shares == 0 {
        return Ok(tx.rollback().await?);
    }
    sleep(THINKING).await;
    let share = draw(cents, shares);
    let update = query("UPDATE envelope SET cents = $1, shares = $2");
    let update = update.bind(cents - share).bind(shares - 1);
    update.execute(&mut *tx).await?;
    let pay = query("INSERT INTO paid VALUES ($1, $2)");
    pay.bind(share).bind(token).execute(&mut *tx).await?;
    Ok(tx.commit().await?)
}

/// Less than twice the average, so that at least a cent is left for each other share; the last one is the rest.
fn draw(cents: i64, shares: i64) -> i64 {
    match shares {
        1 => cents,
        _ => fastrand::i64(1..2 * cents / shares),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lock_pays_what_was_put_in() -> Result<()> {
        run(&PostgresServer::shared().database()).await
    }
}
