use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script, cmd};

use super::super::unique::unique;
use super::super::until::until;
use super::failure;
use crate::subject::{Failure, LOST, Subject};

/// What a lock in Redis takes at least. It asks again while somebody else has it, and a future that
/// is dropped may leave the key for a ttl.
#[derive(Clone, Debug)]
pub(super) struct Least {
    connection: MultiplexedConnection,
    /// What stands before the names.
    prefix: Arc<str>,
    /// Of the script that releases.
    hash: Arc<str>,
}

pub(super) struct Held {
    key: Arc<str>,
    value: String,
}

impl Least {
    /// Takes one and gives it back, so that a user who may not do that is told here. The server has
    /// the script then: a user who may run scripts need not be one who may load them.
    pub(super) async fn new(
        connection: MultiplexedConnection,
        namespace: &str,
    ) -> Result<Self, Failure> {
        let prefix = match namespace {
            "" => "lock-bench-bare:".to_owned(),
            namespace => format!("{namespace}:lock-bench-bare:"),
        };
        let least = Self {
            connection,
            prefix: prefix.into(),
            hash: Script::new(COMPARE_AND_DELETE).get_hash().into(),
        };
        let first = least.key(&unique())?;
        if let Some(held) = least.set(&first, FIRST).await? {
            let freed = least.free("EVAL", COMPARE_AND_DELETE, &held).await;
            freed.map_err(failure)?;
        }
        Ok(least)
    }

    /// How many keys it deleted.
    async fn free(&self, how: &str, script: &str, held: &Held) -> RedisResult<u32> {
        let mut free = cmd(how);
        free.arg(script).arg(1).arg(&*held.key).arg(&held.value);
        free.query_async(&mut self.connection.clone()).await
    }

    async fn set(&self, key: &Arc<str>, ttl: Duration) -> Result<Option<Held>, Failure> {
        let value = unique();
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut set = cmd("SET");
        set.arg(&**key).arg(&value).arg("NX").arg("PX").arg(millis);
        let answer = set.query_async(&mut self.connection.clone()).await;
        let taken: Option<String> = answer.map_err(failure)?;
        Ok(taken.map(|_| Held {
            key: Arc::clone(key),
            value,
        }))
    }
}

impl Subject for Least {
    type Key = Arc<str>;
    type Held = Held;

    fn key(&self, name: &str) -> Result<Arc<str>, Failure> {
        Ok(format!("{}{name}", self.prefix).into())
    }

    async fn acquire(
        &self,
        key: &Arc<str>,
        ttl: Duration,
        wait: Option<Duration>,
    ) -> Result<Option<Held>, Failure> {
        until(wait, || self.set(key, ttl)).await
    }

    fn token(_: &Held) -> Option<u64> {
        None
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        let freed = match self.free("EVALSHA", &self.hash, &held).await {
            // It was restarted, or somebody flushed its scripts.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                self.free("EVAL", COMPARE_AND_DELETE, &held).await
            }
            freed => freed,
        };
        match freed.map_err(failure)? {
            1 => Ok(()),
            _ => Err(Failure::new(LOST, "the key has another value, or none")),
        }
    }
}

/// Of the first one, which nobody else wants.
const FIRST: Duration = Duration::from_secs(5);

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
