use std::sync::Arc;
use std::time::Duration;

use polylock_core::LockKey;
use polylock_core::engine::Engine;
use sha2::{Digest as _, Sha256};

use super::args::Args;
use super::statements::SessionStatements;
use crate::config::SqlMode;
use crate::error::SqlFailure;
use crate::pool::Pool;
use crate::purge::Purge;
use crate::table::TokenRange;
use crate::wire::{ConnectTarget, QueryResult, Sql, SqlValue, hex};

/// What all sessions of one lock service share.
pub(crate) struct SessionContext {
    pub(crate) engine: Engine,
    pub(crate) target: Arc<ConnectTarget>,
    pub(crate) statements: SessionStatements,
    /// For statements that are no part of the transaction of a lock.
    pub(crate) control_pool: Arc<Pool>,
    pub(crate) purge: Arc<Purge>,
    /// `Advisory` or `Row`.
    pub(crate) mode: SqlMode,
    /// The silence after which the server ends a session.
    pub(crate) timeout: Duration,
    /// What one statement may take.
    pub(crate) request_timeout: Duration,
    pub(crate) connections: usize,
    /// Distinguishes the locks of this table from those of others.
    pub(crate) scope: String,
}

impl SessionContext {
    /// How long a session is trusted after it has sent a request that was answered.
    ///
    /// Shorter than the server's timeout, by the margin of a lease: clocks run at different speeds.
    pub(crate) fn trusted_for(&self) -> Duration {
        self.timeout - (self.timeout / 10).max(Duration::from_millis(50))
    }

    /// Interval of health probes of a session that holds something.
    pub(crate) fn probe_every(&self) -> Duration {
        (self.timeout / 4).min(Duration::from_secs(1))
    }

    /// Idle time after which a session without locks is closed, before the server does so.
    pub(crate) fn rests_for(&self) -> Duration {
        (self.timeout / 2).min(Duration::from_secs(60))
    }

    /// Runs statements that are no part of the transaction of a lock.
    pub(super) async fn control(
        &self,
        sql: &Arc<Sql>,
        args: Args,
    ) -> Result<QueryResult, SqlFailure> {
        self.control_pool.run(sql, args.into_vec()).await
    }

    /// The same for a statement that changes nothing.
    pub(super) async fn ask(&self, sql: &Arc<Sql>, args: Args) -> Result<QueryResult, SqlFailure> {
        self.control_pool.ask(sql, args.into_vec()).await
    }

    /// Runs statements in the background; `unless` names the effect of a failure.
    pub(super) fn in_background(
        self: &Arc<Self>,
        sql: &Arc<Sql>,
        args: Args,
        unless: &'static str,
    ) {
        let (context, sql) = (Arc::clone(self), Arc::clone(sql));
        self.engine.spawn_service(async move {
            if let Err(failure) = context.control(&sql, args).await {
                tracing::debug!(cause = %failure.cause, "{unless}");
            }
        });
    }

    pub(crate) fn args(&self, key: &LockKey) -> Args {
        let args = Args::new().with(Args::NAME, key.as_bytes());
        if self.mode != SqlMode::Advisory {
            return args.with(Args::ROW_KEY, key.as_bytes());
        }
        let lock = Advisory::of(&self.scope, key);
        let is_postgres = self.target.config.server.is_postgres();
        let args = args.with(Args::ROW_KEY, lock.hash(is_postgres));
        if is_postgres {
            // The record says what is locked, to be found in the server's list.
            args.with(Args::LOCK, lock.number())
                .with(Args::BEGAN, lock.number())
        } else {
            args.with(Args::LOCK, lock.name())
        }
    }
}

/// A block of tokens, if it can be one.
pub(crate) fn tokens(first: i64, last: i64) -> Option<TokenRange> {
    let (next, last) = (u64::try_from(first).ok()?, u64::try_from(last).ok()?);
    (next > 0 && next <= last).then_some(TokenRange { next, last })
}

/// A replacement for a key where a database locks numbers or short names.
///
/// It is a cryptographic hash, so that no two keys collide, neither by chance nor on purpose.
struct Advisory([u8; 32]);

impl Advisory {
    fn of(scope: &str, key: &LockKey) -> Self {
        let hash = Sha256::new()
            .chain_update(scope.as_bytes())
            .chain_update([0])
            .chain_update(key.as_bytes())
            .finalize();
        Self(hash.into())
    }

    fn number(&self) -> i64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// 20 bytes of the hash in lower case: names are cut at 64 characters, and `A` is `a`.
    fn name(&self) -> String {
        format!("polylock:{}", hex(&self.0[..20]))
    }

    /// The bytes of the hash that are locked.
    fn hash(&self, is_postgres: bool) -> SqlValue {
        SqlValue::from(if is_postgres {
            &self.0[..8]
        } else {
            &self.0[..20]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients of all versions exclude each other by these, and no two keys have the same one by chance:
    /// `printf 'test.polylock_locks\0orders/42' | sha256sum` says them.
    #[test]
    fn a_hash_is_what_it_was() {
        let key = LockKey::new("orders/42").unwrap();
        let lock = Advisory::of("test.polylock_locks", &key);
        let (number, name) = (
            -3_215_004_926_899_838_976_i64,
            "polylock:d362020d85012000e500a44118758f9e30498797",
        );
        assert_eq!(lock.number(), number, "PostgreSQL locks all 64 bits");
        assert_eq!(lock.name(), name, "MySQL locks 160 bits");
        let bytes = |is_postgres| lock.hash(is_postgres).bytes().map(<[u8]>::to_vec);
        assert_eq!(bytes(true), Some(number.to_be_bytes().to_vec()), "its row");
        let row = hex(&bytes(false).unwrap());
        assert_eq!(Some(&*row), name.strip_prefix("polylock:"), "its row");
    }

    #[test]
    fn tokens_are_some() {
        assert_eq!(tokens(1, 64), Some(TokenRange { next: 1, last: 64 }));
        assert_eq!(tokens(0, 64), None);
        assert_eq!(tokens(65, 64), None);
        assert_eq!(tokens(-5, 64), None);
    }
}
