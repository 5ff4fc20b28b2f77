//! Locks inside of the caller's own transaction, and writes that a stale holder cannot make.
//!
//! [`TransactionLocks`] acquires a lock in an open sqlx transaction of the caller, on PostgreSQL, MySQL,
//! MariaDB or SQLite. Commit and rollback release it. All writes of the transaction are protected: the
//! lock is lost only with the connection, and the writes with it. The lock never expires, needs no
//! renewal, and uses only the connection of the caller.
//!
//! [`Fence`] protects writes under another lock, which may be lost at any time: it admits them in
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
//! Two transactions that have acquired one key in one table do not overlap, from the return of
//! [`acquire_in`](TransactionLocks::acquire_in) to the end of the transaction, or to a rollback to a
//! [savepoint](#transactions) before the call. On PostgreSQL, MySQL and MariaDB they also exclude
//! holders in `mode=row` with the same table and key, on SQLite all holders. Locks in `mode=lease` and
//! `mode=advisory` are separate.
//!
//! This guarantee holds for row locks in one server. After a restart of the server, or on a promoted
//! standby whose former primary is gone, a transaction gets no lock for the longest session timeout in
//! the table: [`Unavailable`](polylock_core::ErrorKind::Unavailable) says for how long. The nodes of a
//! Galera cluster do not see each other's row locks: when the transactions commit, all but one are
//! refused.
//!
//! # Transactions
//!
//! A connection without an open transaction is refused, because the lock would be free after the
//! statement. Drop a sqlx transaction only if its connection returns to a pool at once. Dropping sends
//! no rollback: on a connection that the caller keeps, the lock is held until the next use. Call
//! `rollback` there.
//!
//! Acquire the lock before the first read. In isolation levels above `READ COMMITTED` a transaction sees
//! the data as of its first statement. If another transaction has held the lock since then, even while
//! this one waited for it, PostgreSQL refuses it with
//! [`Unavailable`](polylock_core::ErrorKind::Unavailable). After a holder in `mode=row`, which writes no
//! row, PostgreSQL grants it, as does MySQL, where such a level is the default, after any holder. Then
//! repeated reads return the old data: read with `SELECT .. FOR UPDATE` there.
//!
//! Acquire it in the outermost transaction, not after a savepoint: a nested `begin` of sqlx sets one.
//! A rollback to an earlier savepoint releases the lock on PostgreSQL, and on MariaDB if its row was new. On
//! MySQL above `READ COMMITTED` it can keep other transactions from new keys and from tokens until this one
//! ends. On SQLite the file stays locked until the end of the transaction.
//!
//! Acquire several locks in the order of their keys, or two transactions may deadlock. The server then
//! ends one of them with `Unavailable`. MySQL and MariaDB also do so when several transactions wait for
//! a key that has no row yet or whose row was purged, and the holder rolls its transaction back.
//!
//! A free lock costs one round trip and a row write. A waiter keeps its connection and an open
//! transaction.
//!
//! # Tokens
//!
//! [`fencing_token`](TransactionLock::fencing_token) protects effects outside of the database, such as a
//! message sent. It is larger than that of every earlier holder whose transaction was committed, and
//! than every earlier token of `mode=row`: all come from one sequence, which is raised to the time of
//! the server in microseconds. The token is drawn after the wait for the lock. After a failover the clock of
//! the new server decides, if it lacks the last writes; on MySQL always, whose replicas have no counter.
//!
//! Inside of the transaction it can be used at once. Show it to others only after the commit: a rollback
//! revokes writes made with it, and after a crash before the commit it may be drawn again.
//!
//! # SQLite
//!
//! A transaction that may write blocks all writes of others, to all tables of the file, so there is never
//! a holder to wait for: a held lease is `Contended` at once, whatever the wait. So is every key while
//! another connection keeps the file locked. Start with `BEGIN IMMEDIATE`, which waits for other
//! transactions up to the busy timeout of the connection. A transaction that reads first fails with
//! `Unavailable` if others have written since.
//!
//! No lease in the file can be renewed while the transaction is open: keep it much shorter than their
//! ttl. The file must be on a local disk, and is the one that `Sqlite` has open, by the same name: a
//! replaced file, a hard link and a file that is mounted without its directory are not detected here.
//! Missing tables are created.

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
