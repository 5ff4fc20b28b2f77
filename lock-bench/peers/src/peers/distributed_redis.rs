use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};
use fred::clients::RedisClient;
use fred::interfaces::ClientLike as _;
use fred::types::RedisConfig;
use polylock_bench::subject::{Failure, Subject};
use polylock_bench::target::Opened;

use super::{failed, poll};

pub(crate) async fn open(url: String) -> Result<Opened, Failure> {
    // As its provider makes one of a URL; here several providers share it.
    let config =
        RedisConfig::from_url(&url).map_err(|_| Failure::new("invalid", "fred refuses the URL"))?;
    let client = RedisClient::new(config, None, None, None);
    client.connect();
    client.wait_for_connect().await.map_err(failed)?;
    let subject = Locks {
        client,
        providers: Arc::default(),
    };
    let library = "distributed-lock-redis 0.2.0, asked every 10 ms";
    Ok(Opened::peer(library, subject))
}

#[derive(Clone)]
struct Locks {
    client: RedisClient,
    /// The length of a lease is a provider's.
    providers: Arc<Mutex<HashMap<Duration, Arc<RedisLockProvider>>>>,
}

impl Locks {
    async fn provider(&self, ttl: Duration) -> Result<Arc<RedisLockProvider>, Failure> {
        let lock = || {
            self.providers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let known = lock().get(&ttl).cloned();
        if let Some(provider) = known {
            return Ok(provider);
        }
        // The others are absolute, with these shares of its default lease of 30 s.
        let provider = RedisLockProvider::builder()
            .client(self.client.clone())
            .expiry(ttl)
            .extension_cadence(ttl / 3)
            .min_validity(ttl * 9 / 10)
            .build();
        let provider = Arc::new(provider.await.map_err(failed)?);
        lock().insert(ttl, Arc::clone(&provider));
        Ok(provider)
    }
}

impl Subject for Locks {
    type Key = (Arc<str>, Duration);
    type Held = RedisLockHandle;

    fn key(&self, name: &str, ttl: Duration) -> Result<Self::Key, Failure> {
        Ok((name.into(), ttl))
    }

    async fn acquire(
        &self,
        (key, ttl): &Self::Key,
        wait: Duration,
    ) -> Result<Option<RedisLockHandle>, Failure> {
        // Two acquisitions of one object have one token between them, so each has an object.
        let lock = self.provider(*ttl).await?.create_lock(key);
        // `acquire` with a time-out does not wait either: it makes one attempt.
        let attempt = || async { lock.try_acquire().await.map_err(failed) };
        poll(POLL_INTERVAL, wait, attempt).await
    }

    async fn release(&self, held: RedisLockHandle) -> Result<(), Failure> {
        held.release().await.map_err(failed)
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(10);
