use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Script, cmd};

use super::super::unique::unique;
use super::super::until::until;
use super::failure;
use crate::subject::{Failure, LOST, Subject};

/// What a lock in Redis takes at least. It asks again while somebody else has it, and a future that
/// is dropped may leave the key for a ttl.
#[derive(Clone, Debug)]
pub(super) struct Least {
    connection: MultiplexedConnection,
    /// Of the script that releases.
    hash: Arc<str>,
}

pub(super) struct Held {
    key: Arc<str>,
    value: String,
}

impl Least {
    pub(super) async fn new(mut connection: MultiplexedConnection) -> Result<Self, Failure> {
        let script = Script::new(COMPARE_AND_DELETE);
        let loaded = script.load_async(&mut connection).await;
        let _: String = loaded.map_err(failure)?;
        Ok(Self {
            connection,
            hash: script.get_hash().into(),
        })
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
        Ok(format!("lock-bench-bare:{name}").into())
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
        let mut release = cmd("EVALSHA");
        release
            .arg(&*self.hash)
            .arg(1)
            .arg(&*held.key)
            .arg(held.value);
        let answer = release.query_async(&mut self.connection.clone()).await;
        match answer.map_err(failure)? {
            1_u32 => Ok(()),
            _ => Err(Failure::new(LOST, "the key has another value, or none")),
        }
    }
}

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
