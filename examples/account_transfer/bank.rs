//! Accounts, and the transfers between them.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::path::Path;
use std::time::Duration;

use lock_core::FencingToken;
use lock_core::fencing::expect_written;
use lock_tower::{HeldLock, Locker};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Executor as _, SqlitePool};
use tokio::sync::Barrier;

use crate::Result;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) cents: i64,
}

impl Transfer {
    /// The same for the same seed, task and number.
    pub(crate) fn random(of: (u64, u32, u32)) -> Self {
        let drawn = BuildHasherDefault::<DefaultHasher>::new().hash_one(of);
        let [from, other, tens] = [drawn >> 8, drawn >> 16, drawn >> 24].map(|bits| bits as u32);
        let from = from % ACCOUNTS;
        let to = (from + 1 + other % (ACCOUNTS - 1)) % ACCOUNTS;
        let cents = 10 * (1 + i64::from(tens) % 40);
        Self { from, to, cents }
    }

    pub(crate) fn accounts(self) -> [String; 2] {
        [self.from, self.to].map(|account| account.to_string())
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Made {
    Declined,
    Done,
}

/// Accounts in SQLite.
#[derive(Clone)]
pub(crate) struct Bank {
    pub(crate) pool: SqlitePool,
}

impl Bank {
    pub(crate) async fn open(file: impl AsRef<Path>) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // Nothing has to survive a power cut.
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(Duration::from_secs(30));
        let pool = SqlitePoolOptions::new().connect_with(options).await?;
        pool.execute(
            "CREATE TABLE accounts (
                id INTEGER PRIMARY KEY,
                balance INTEGER NOT NULL,
                fence INTEGER NOT NULL DEFAULT 0)",
        )
        .await?;
        for account in 0..ACCOUNTS {
            let insert = sqlx::query("INSERT INTO accounts (id, balance) VALUES (?, ?)");
            insert.bind(account).bind(BALANCE).execute(&pool).await?;
        }
        Ok(Self { pool })
    }

    /// Makes a transfer, with the locks of both accounts if there is somebody who has locks.
    pub(crate) async fn serve(
        &self,
        transfer: Transfer,
        locker: Option<Locker>,
        meeting: Option<&Barrier>,
    ) -> Result<Made> {
        let held = match &locker {
            Some(locker) => Some(locker.lock_all(transfer.accounts()).await?),
            None => None,
        };
        let fences = match &held {
            Some(held) => tokens_of(held, transfer)?,
            None => [FencingToken::new(0); 2],
        };
        let new = self.look(transfer).await?;
        if let Some(meeting) = meeting {
            meeting.wait().await;
        }
        tokio::time::sleep(THINKING).await;
        let made = match new {
            Some(new) => {
                self.write(transfer, new, fences).await?;
                Made::Done
            }
            None => Made::Declined,
        };
        if let Some(held) = held {
            held.release().await?;
        }
        Ok(made)
    }

    /// The balances after the transfer; `None` if there is not enough money.
    pub(crate) async fn look(&self, transfer: Transfer) -> Result<Option<[i64; 2]>> {
        let from = self.balance(transfer.from).await?;
        let to = self.balance(transfer.to).await?;
        let enough = from >= transfer.cents;
        Ok(enough.then_some([from - transfer.cents, to + transfer.cents]))
    }

    async fn balance(&self, account: u32) -> Result<i64> {
        let query = sqlx::query_scalar("SELECT balance FROM accounts WHERE id = ?");
        Ok(query.bind(account).fetch_one(&self.pool).await?)
    }

    /// Both balances or none of them.
    pub(crate) async fn write(
        &self,
        transfer: Transfer,
        new: [i64; 2],
        fences: [FencingToken; 2],
    ) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        let accounts = [transfer.from, transfer.to];
        for ((account, balance), fence) in accounts.into_iter().zip(new).zip(fences) {
            let number = i64::try_from(fence.value())?;
            let sql = "UPDATE accounts SET balance = ?1, fence = ?2 WHERE id = ?3 AND fence <= ?2";
            let update = sqlx::query(sql).bind(balance).bind(number).bind(account);
            let rows = update.execute(&mut *tx).await?.rows_affected();
            // The transaction is rolled back when it is dropped.
            expect_written(format!("account {account}"), fence, rows)?;
        }
        Ok(tx.commit().await?)
    }

    pub(crate) async fn balances(&self) -> Result<Vec<i64>> {
        let query = sqlx::query_scalar("SELECT balance FROM accounts ORDER BY id");
        Ok(query.fetch_all(&self.pool).await?)
    }
}

/// The tokens of the two accounts, which are not comparable with each other.
pub(crate) fn tokens_of(held: &HeldLock, transfer: Transfer) -> Result<[FencingToken; 2]> {
    let token = |account: u32| {
        let name = format!("{NAMESPACE}:{account}");
        let found = held.fencing_tokens().find(|(key, _)| key.as_str() == name);
        found.and_then(|(_, token)| token).ok_or(NO_TOKENS)
    };
    Ok([token(transfer.from)?, token(transfer.to)?])
}

/// Of the locks of all accounts.
pub(crate) const NAMESPACE: &str = "accounts";
pub(crate) const NO_TOKENS: &str = "the backend has no fencing tokens";

pub(crate) const ACCOUNTS: u32 = 8;
/// Of each account in the beginning, in cents.
pub(crate) const BALANCE: i64 = 1000;
pub(crate) const TOTAL: i64 = BALANCE * ACCOUNTS as i64;

const THINKING: Duration = Duration::from_millis(1);
