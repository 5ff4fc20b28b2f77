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

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use anyhow::{Result, ensure};
use lock_testkit::servers::PostgresServer;
use polylock::LockUrl;
use polylock::sql::Schema;
use polylock::sql::transaction::TransactionLocks;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, query, query_as, query_scalar, raw_sql};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const CENTS: i64 = 8888;
const SHARES: i64 = 20;
const GRABBERS: i64 = 48;
const CONNECTIONS: i64 = 8;

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(url) => run(&url).await,
        None => run(&PostgresServer::shared().database()).await,
    }
}

async fn run(url: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    // The table of the locks; a service creates it in a migration, `lockctl` prints it.
    let locks = AssertSqlSafe(Schema::of(&LockUrl::parse(url)?)?.sql());
    raw_sql(locks).execute(&mut connection).await?;
    let tables = "CREATE TABLE envelope (cents BIGINT, shares BIGINT);
                  CREATE TABLE paid (grabber BIGINT, cents BIGINT, token BIGINT)";
    raw_sql(tables).execute(&mut connection).await?;

    open_envelope(url, Lock::Off).await?;
    let (sum, left, _) = result(&mut connection, "without the lock").await?;
    ensure!(sum + left > CENTS, "nothing was paid twice");

    open_envelope(url, Lock::On).await?;
    let (sum, left, paid) = result(&mut connection, "with the lock").await?;
    ensure!((sum, left) == (CENTS, 0), "the lock did not keep the sum");
    let grabbers: BTreeSet<_> = paid.iter().map(|(grabber, ..)| grabber).collect();
    let tokens: BTreeSet<_> = paid.iter().map(|(.., token)| token).collect();
    let counts = [paid.len(), grabbers.len(), tokens.len()];
    println!("with the lock      shares, grabbers and tokens: {counts:?}");
    let is_empty = paid.iter().any(|(_, cents, _)| *cents < 1);
    ensure!(counts == [SHARES as usize; 3] && !is_empty, "{paid:?}");
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Lock {
    Off,
    On,
}

/// Fills the envelope, and lets everybody grab at eight connections.
async fn open_envelope(url: &str, lock: Lock) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let fill = format!("TRUNCATE envelope, paid; INSERT INTO envelope VALUES ({CENTS}, {SHARES})");
    let fill = raw_sql(AssertSqlSafe(fill));
    fill.execute(&mut connection).await?;
    // The worst case, made certain: two have read before one of them writes.
    let both_have_read = Arc::new(Barrier::new(2));
    let mut open = JoinSet::new();
    for first in 0..CONNECTIONS {
        let mut connection = PgConnection::connect(url).await?;
        let barrier = (lock == Lock::Off && first < 2).then(|| Arc::clone(&both_have_read));
        open.spawn(async move {
            let mut meeting = barrier.as_deref();
            for grabber in (first..GRABBERS).step_by(CONNECTIONS as usize) {
                grab(&mut connection, grabber, lock, meeting.take()).await?;
            }
            anyhow::Ok(())
        });
    }
    open.join_all().await.into_iter().collect()
}

async fn grab(
    connection: &mut PgConnection,
    grabber: i64,
    lock: Lock,
    meeting: Option<&Barrier>,
) -> Result<()> {
    let mut tx = connection.begin().await?;
    let token = match lock {
        Lock::Off => 0,
        Lock::On => {
            let locks = TransactionLocks::new();
            let held = locks.acquire_in(&mut *tx, "envelope/1").await?;
            i64::try_from(held.fencing_token().value())?
        }
    };
    let select = query_as("SELECT cents, shares FROM envelope");
    let (cents, shares): (i64, i64) = select.fetch_one(&mut *tx).await?;
    if let Some(meeting) = meeting {
        meeting.wait().await;
    }
    if shares == 0 {
        return Ok(tx.rollback().await?);
    }
    let share = draw(cents, shares);
    let update = query("UPDATE envelope SET cents = $1, shares = $2");
    let update = update.bind(cents - share).bind(shares - 1);
    update.execute(&mut *tx).await?;
    let pay = query("INSERT INTO paid VALUES ($1, $2, $3)");
    let pay = pay.bind(grabber).bind(share).bind(token);
    pay.execute(&mut *tx).await?;
    Ok(tx.commit().await?)
}

/// A share between one cent and twice the average, less one; the last one is the rest. At least a
/// cent is left for each other share.
fn draw(cents: i64, shares: i64) -> i64 {
    if shares == 1 {
        return cents;
    }
    let max = 2 * cents / shares - 1;
    // Keys of a hash map are random; a remainder favors small shares by less than one in 2^32.
    1 + (RandomState::new().hash_one(()) % max.unsigned_abs()) as i64
}

/// Grabber, cents and token.
type Payment = (i64, i64, i64);

/// The sum paid, the cents left, and each payment.
async fn result(connection: &mut PgConnection, name: &str) -> Result<(i64, i64, Vec<Payment>)> {
    let select = query_as("SELECT grabber, cents, token FROM paid");
    let paid: Vec<Payment> = select.fetch_all(&mut *connection).await?;
    let select = query_scalar("SELECT cents FROM envelope");
    let left: i64 = select.fetch_one(connection).await?;
    let sum = paid.iter().map(|(_, cents, _)| cents).sum();
    let shares = paid.len();
    println!("{name:<18} {sum} of {CENTS} cents paid in {shares} shares, {left} left");
    Ok((sum, left, paid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lock_pays_what_was_put_in() -> Result<()> {
        run(&PostgresServer::shared().database()).await
    }

    #[test]
    fn shares_leave_a_cent_for_each_other_share() {
        for cents in 1..=200 {
            for shares in 1..=cents.min(40) {
                let (mut left, mut others) = (cents, shares);
                while others > 0 {
                    let share = draw(left, others);
                    assert!(share >= 1, "{share} of {left}");
                    (left, others) = (left - share, others - 1);
                    assert!(left >= others, "{left} for {others}");
                }
                assert_eq!(left, 0);
            }
        }
    }
}
