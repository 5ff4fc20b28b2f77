mod seen;
mod watch;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::join;
use lock_core::admin::{LockAdmin, LockEvent, LockInfo};
use lock_core::engine::{LeaseId, before};
use lock_core::{Error, ErrorKind, LeaseState, LockKey, Released, Result};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use zookeeper_client::{Client as Connection, Error as ClientError};

use crate::error::{Failure, PAUSE};
use crate::lock::{Client, NAME};
use crate::recipe::directory::{Directory, key_of};
use crate::session::Sessions;

use self::seen::{Depth, Seen};

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Client {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        let held = self.held(prefix, Depth::Line).await.map_err(named)?;
        Ok(held.into_iter().map(|(key, seen)| seen.info(key)).collect())
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        let seen = self.bound(see(&self.sessions, key)).await;
        let seen = seen.map_err(|failure| named(failure).with_key(key))?;
        Ok(seen.map(|seen| seen.info(key.clone())))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let broken = self.bound(delete_holders(&self.sessions, key)).await;
        let broken = broken.map_err(|failure| named(failure).with_key(key))?;
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
        }
        Ok(broken)
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        self.watch_by_polling(prefix).await.map_err(named)
    }

    async fn renew_lease(&self, key: &LockKey, _: LeaseId, _: Duration) -> Result<LeaseState> {
        Err(no_lease(key))
    }

    async fn release_lease(&self, key: &LockKey, _: LeaseId) -> Result<Released> {
        Err(no_lease(key))
    }
}

fn named(failure: Failure) -> Error {
    Error::from(failure).with_backend(NAME)
}

fn no_lease(key: &LockKey) -> Error {
    let message = "a lock of ZooKeeper lives with the session of its holder, and nobody else renews it \
                   or gives it back";
    Error::new(ErrorKind::Unsupported, message)
        .with_backend(NAME)
        .with_key(key)
}

impl Client {
    /// What is held under a prefix, sorted by key.
    async fn held(&self, prefix: &str, depth: Depth) -> Result<Vec<(LockKey, Seen)>, Failure> {
        self.bound(held(&self.sessions, prefix, depth)).await
    }

    /// Bounds a request of an administrator.
    async fn bound<T>(
        &self,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let timeout = self.sessions.config.timeout;
        let answer = before(Instant::now() + timeout, request).await;
        answer.unwrap_or_else(|| Err(Failure::silent(timeout)))
    }
}

async fn held(
    sessions: &Sessions,
    prefix: &str,
    depth: Depth,
) -> Result<Vec<(LockKey, Seen)>, Failure> {
    let session = sessions
        .get(Instant::now() + sessions.config.timeout)
        .await?;
    let names = session.client.list_children("/").await?;
    let keys = names.iter().filter_map(|name| key_of(name));
    let mut keys: Vec<_> = keys
        .filter(|key| key.as_str().starts_with(prefix))
        .collect();
    keys.sort();
    let mut held = Vec::new();
    for keys in keys.chunks(AT_ONCE) {
        let directories: Vec<_> = keys.iter().map(Directory::of).collect();
        let looks = directories
            .iter()
            .map(|directory| Seen::look(&session.client, directory, depth));
        for (key, seen) in keys.iter().zip(join_all(looks).await) {
            held.extend(seen?.map(|seen| (key.clone(), seen)));
        }
    }
    Ok(held)
}

/// How many locks are looked at at once.
const AT_ONCE: usize = 64;

/// A lock as its directory shows it now; `None` if it is free.
async fn see(sessions: &Sessions, key: &LockKey) -> Result<Option<Seen>, Failure> {
    let session = sessions
        .get(Instant::now() + sessions.config.timeout)
        .await?;
    look_now(&session.client, &Directory::of(key)).await
}

/// A look behind all that any server has acknowledged: the server of this client may be behind.
async fn look_now(connection: &Connection, directory: &Directory) -> Result<Option<Seen>, Failure> {
    // Both are sent here, in this order.
    let synced = connection.sync(directory.path());
    let (synced, seen) = join!(synced, Seen::look(connection, directory, Depth::Line));
    synced?;
    seen
}

/// Deletes the nodes of the present holders, and not of the next one.
async fn delete_holders(sessions: &Sessions, key: &LockKey) -> Result<Option<LockInfo>, Failure> {
    let session = sessions
        .get(Instant::now() + sessions.config.timeout)
        .await?;
    let (connection, directory) = (&session.client, Directory::of(key));
    let Some(seen) = look_now(connection, &directory).await? else {
        return Ok(None);
    };
    for holder in seen.holders() {
        let path = directory.child(holder.name());
        loop {
            match connection.delete(&path, None).await.map_err(Failure::from) {
                Ok(()) => break,
                Err(failure) if failure.client() == Some(&ClientError::NoNode) => break,
                // Deleting it once more changes nothing.
                Err(failure) if failure.is_ambiguous() => sleep(PAUSE).await,
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(Some(seen.info(key.clone())))
}
