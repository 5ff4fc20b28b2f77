//! Leases on real servers, past what only a connection can see.

mod adopt;
mod doubt;
mod locked;
mod rows;
mod sharing;
mod tokens;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::servers::{MariaDbServer, PostgresServer};
use polylock_core::engine::{Engine, LeaseId};
use polylock_core::{LockKey, LockUrl, Mode};

use super::DatabaseStore;
use crate::config::SqlConfig;
use crate::error::Failure;
use crate::pool::Pool;
use crate::store::Store as _;
use crate::table::{Claim, Refusal, Tokens};
use crate::wire::{Answer, Sql, Target};

const TTL: Duration = Duration::from_secs(30);

/// A database of its own on a server of each kind.
fn databases() -> [String; 2] {
    [
        PostgresServer::shared().database(),
        MariaDbServer::shared().database(),
    ]
}

/// A client as of another process.
struct Client {
    store: DatabaseStore,
    pool: Arc<Pool>,
}

impl Client {
    async fn open(url: &str, parameters: &str) -> Self {
        let url = LockUrl::parse(&format!("{url}?mode=lease{parameters}")).expect("a URL");
        let config = SqlConfig::from_url(&url).expect("a configuration");
        let target = Arc::new(config.target().expect("a target"));
        Self::on(&target, config).await
    }

    async fn on(target: &Arc<Target>, config: SqlConfig) -> Self {
        let looked = crate::checks::look_for_pooler(target, &config).await;
        looked.expect("a server");
        let mut connection = crate::lock::open(target, &config).await.expect("a server");
        let ensured = crate::schema::ensure(&mut connection, &config).await;
        ensured.expect("a table");
        let engine = config.engine.clone();
        let engine = engine.unwrap_or_else(|| Engine::of_this_process("test"));
        Self {
            store: DatabaseStore::new(&engine, target, &Arc::new(config)),
            pool: Pool::new(&engine, target, 1, Duration::from_secs(5)),
        }
    }

    /// Past the library.
    async fn sql(&self, text: &str) -> Answer {
        let sql = Sql::new(text);
        self.pool.statement(&sql, Vec::new()).await.expect("done")
    }

    async fn number(&self, text: &str) -> i64 {
        self.sql(text).await.int(0).expect("a number")
    }

    async fn try_take(
        &self,
        name: &str,
        n: u8,
        mode: Mode,
        ttl: Duration,
    ) -> Result<Result<Tokens, Refusal>, Failure> {
        let claim = Claim {
            ttl,
            ..claim(n, mode)
        };
        self.store.take(&key(name), claim).await
    }

    async fn look(&self, name: &str, mode: Mode) -> Result<Result<(), Refusal>, Failure> {
        self.store.look(&key(name), &claim(0, mode)).await
    }

    /// Takes a lock, or not.
    async fn take(&self, name: &str, n: u8, mode: Mode) -> Option<Tokens> {
        self.try_take(name, n, mode, TTL)
            .await
            .expect("an answer")
            .ok()
    }
}

/// Odd ones wait.
fn claim(n: u8, mode: Mode) -> Claim {
    Claim {
        id: id(n),
        mode,
        ttl: TTL,
        label: format!("host=h{n}&pid={n}"),
        waits: n % 2 == 1,
        ticket: None,
        is_queued: false,
        is_notified: false,
    }
}

fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("a key")
}

fn id(n: u8) -> LeaseId {
    LeaseId::from_bytes([n; 16])
}
