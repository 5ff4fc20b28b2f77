//! Locks inside of the caller's own transaction, and writes that a stale holder cannot make.
//!
//! [`TransactionLocks`] takes a lock in a transaction of sqlx that the caller has open, on
//! PostgreSQL, MySQL, MariaDB or SQLite. Commit and rollback release it. What the transaction
//! writes is protected to the end: if the lock is lost, because the connection is, so are the
//! writes. Nothing expires, nothing is renewed, and there is no connection but the caller's.
//!
//! [`Fence`] guards writes under another lock, which may be lost in the middle: it admits them in
//! the order of their tokens.
//!
#![cfg_attr(
    feature = "sqlite",
    doc = r#"
# Examples

```
use polylock_core::fencing::StaleToken;
use polylock_sql::transaction::{Fence, TransactionLocks, WriteError};
use sqlx::{Connection as _, SqliteConnection, query, raw_sql};

# #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
# let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
# raw_sql("CREATE TABLE stock (item TEXT, left INTEGER); INSERT INTO stock VALUES ('lamp', 1)")
#     .execute(&mut connection).await?;
let (locks, fence) = (TransactionLocks::new(), Fence::new());

let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
let lock = locks.acquire_in(&mut *tx, "stock/lamp").await?;
let sell = query("UPDATE stock SET left = left - 1 WHERE item = 'lamp' AND left > 0");
let sold = sell.execute(&mut *tx).await?.rows_affected();
let now = lock.fencing_token();
tx.commit().await?;
assert_eq!(sold, 1);

// Elsewhere, the holder of another lock writes with its token, and the former holder is late.
# let (before, now) = (polylock_core::FencingToken::new(now.value() - 1), now);
let set = || query("UPDATE stock SET left = ? WHERE item = 'lamp'");
let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
let rows = fence.write_if_newer(&mut *tx, "stock/lamp", now, set().bind(7)).await?;
assert_eq!(rows, 1);
let late = fence.write_if_newer(&mut *tx, "stock/lamp", before, set().bind(9)).await;
assert!(matches!(late, Err(WriteError::Stale(StaleToken { token, .. })) if token == before));
tx.commit().await?;
# let left: i64 = sqlx::query_scalar("SELECT left FROM stock").fetch_one(&mut connection).await?;
# assert_eq!(left, 7);
# Ok(()) }
```
"#
)]
//!
//! # Guarantees
//!
//! Two transactions that have taken one key in one table do not overlap, from the return of
//! [`acquire_in`](TransactionLocks::acquire_in) to the end of the transaction. On PostgreSQL, MySQL
//! and MariaDB they do not overlap with holders in `mode=row` of the same table and key either, on
//! SQLite with no holder at all. Locks in `mode=lease` and `mode=advisory` are others.
//!
//! That is the promise of row locks in one server. After a restart of the server, or on a promoted
//! standby whose former primary is gone, a transaction gets no lock for the longest session timeout that
//! the table knows of:
//! [`Unavailable`](polylock_core::ErrorKind::Unavailable) says for how long. The nodes of a Galera
//! cluster do not see the row locks of each other: they refuse all but one of the transactions when
//! they commit.
//!
//! # Transactions
//!
//! A connection without an open transaction is refused, because the lock would be free when the
//! statement is over. Drop a transaction of sqlx only if its connection goes back to a pool at
//! once: dropping sends no rollback, and on a connection that stays where it is the lock is held
//! until that is used for something else. Call `rollback` otherwise.
//!
//! Take the lock before anything is read. In the isolation levels above `READ COMMITTED` a
//! transaction sees the data as they were at its first statement: PostgreSQL refuses a lock that
//! others have had since then, with [`Unavailable`](polylock_core::ErrorKind::Unavailable), also if it
//! was the lock that was waited for; MySQL, whose default that is, grants it, and what was read
//! before reads the same after. Read by `SELECT .. FOR UPDATE` there.
//!
//! Acquire several locks in the order of their keys, or two transactions may deadlock. The server
//! ends one of them after a moment, with `Unavailable`. It does so on MySQL and MariaDB too when
//! several wait for a key that has no row yet or whose row was purged, and the transaction of its holder is rolled
//! back.
//!
//! The lock costs one round trip when it is free, and a row that is written. A waiter costs its
//! connection and an open transaction.
//!
//! # Tokens
//!
//! [`fencing_token`](TransactionLock::fencing_token) is for what the transaction has done elsewhere,
//! such as a message sent. It is larger than that of every earlier holder whose transaction was
//! committed, and than every token of `mode=row` that was drawn before: all come from one sequence,
//! which is raised to the time of the server in microseconds. A wait in between does not matter,
//! because the token is drawn at its end.
//!
//! Inside of the transaction it can be used at once; show it to others after the commit, and not
//! before: what was written with it may be rolled back, and a crash before the commit may draw it again.
//!
//! # SQLite
//!
//! A transaction that may write keeps all others from writing, to all tables of the file, so
//! there is never a holder to wait for: a lease that is held is `Contended` at once, whatever the
//! wait. Begin by `BEGIN IMMEDIATE`, which waits for the other transaction by the busy time-out of
//! the connection. A transaction that has read first may find that others have written since, with
//! `Unavailable`.
//!
//! No lease in the file can be renewed while the transaction is open: keep it much shorter than
//! their ttl. The file is the one that `Sqlite` has open, on a local disk; whether
//! it was replaced is not looked after here. The tables are made if there are none.

mod connection;
mod fence;
mod locks;
#[cfg(feature = "mysql")]
mod mysql;
mod place;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "_server")]
mod server;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use self::connection::Connection;
pub use self::fence::{Fence, WriteError};
pub use self::locks::{TransactionLock, TransactionLocks};
