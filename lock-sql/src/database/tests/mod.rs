//! Leases on real servers, past what only a connection can see.

mod adopt;
mod doubt;
mod locked;
pub(crate) mod pooler;
mod rows;
mod sharing;
mod tokens;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::locks::{key, until};
use lock_testkit::servers::{MariaDbServer, PostgresServer};
use polylock_core::engine::Engine;
use polylock_core::{LockUrl, Mode, Released};

pub(crate) use self::doubt::until_blocked;
pub(crate) use self::locked::begin;
use super::DatabaseStore;
use crate::config::SqlConfig;
use crate::error::SqlFailure;
use crate::pool::Pool;
use crate::store::LeaseStore as _;
use crate::table::testing::{claim, id};
use crate::table::{LockRefusal, SqlClaim, TokenRange};
use crate::wire::{ConnectTarget, QueryResult, ServerConnection, Sql};

const TTL: Duration = Duration::from_secs(30);
const ALONE: Mode = Mode::Exclusive;

/// A database of its own on a server of each kind.
pub(crate) fn databases() -> [String; 2] {
    [
        PostgresServer::shared().database(),
        MariaDbServer::shared().database(),
    ]
}

fn config(url: &str, parameters: &str) -> SqlConfig {
    let url = LockUrl::parse(&format!("{url}?mode=lease{parameters}")).expect("a URL");
    SqlConfig::from_url(&url).expect("a configuration")
}

/// A client as of another process.
pub(crate) struct Client {
    pub(crate) store: DatabaseStore,
    pool: Arc<Pool>,
}

impl Client {
    pub(crate) async fn open(url: &str, parameters: &str) -> Self {
        Self::of(config(url, parameters)).await
    }

    /// A client whose statements have time for a login, and less than the second after which MariaDB refuses
    /// one that waits. A busy machine may need several attempts to open it.
    async fn hasty(url: &str) -> Self {
        let mut opened = None;
        until("it opens", async || {
            opened = Self::try_of(config(url, "&timeout=900ms")).await.ok();
            opened.is_some()
        })
        .await;
        opened.expect("it is opened")
    }

    async fn of(config: SqlConfig) -> Self {
        let opened = Self::try_of(config).await;
        opened.expect("a server and a table")
    }

    async fn try_of(config: SqlConfig) -> Result<Self, SqlFailure> {
        let engine = config.engine.clone();
        let engine = engine.unwrap_or_else(|| Engine::of_this_process("test"));
        let target = Arc::new(ConnectTarget::of(config).expect("a target"));
        crate::checks::look_for_pooler(&target).await?;
        let mut connection = ServerConnection::open_first(&target).await?;
        crate::schema::ensure(&mut connection).await?;
        Ok(Self {
            store: DatabaseStore::new(&engine, &target),
            pool: Pool::new(&engine, &target, 1, Duration::from_secs(5)),
        })
    }

    /// Past the library.
    pub(crate) async fn sql(&self, text: &str) -> QueryResult {
        let sql = Sql::prepared(text);
        self.pool.run(&sql, Vec::new()).await.expect("done")
    }

    pub(crate) async fn number(&self, text: &str) -> i64 {
        self.sql(text).await.int(0).expect("a number")
    }

    async fn try_take(
        &self,
        name: &str,
        n: u8,
        mode: Mode,
        ttl: Duration,
    ) -> Result<Result<TokenRange, LockRefusal>, SqlFailure> {
        let claim = SqlClaim {
            ttl,
            ..claim(n, mode)
        };
        self.store.take(&key(name), claim).await
    }

    async fn look(&self, name: &str, mode: Mode) -> Result<Result<(), LockRefusal>, SqlFailure> {
        self.store.look(&key(name), &claim(0, mode)).await
    }

    pub(crate) async fn release(&self, name: &str, n: u8) -> Released {
        let released = self.store.release(&key(name), id(n)).await;
        released.expect("an answer")
    }

    /// Takes a lock, or not.
    pub(crate) async fn take(&self, name: &str, n: u8, mode: Mode) -> Option<TokenRange> {
        self.try_take(name, n, mode, TTL)
            .await
            .expect("an answer")
            .ok()
    }
}
