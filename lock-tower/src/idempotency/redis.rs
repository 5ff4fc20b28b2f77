use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use polylock_core::{FencingToken, LockKey};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult,
    ServerErrorKind,
};
use tokio::sync::Mutex;

use crate::locker::Namespace;

use super::store::{MAX_ATTEMPTS, check_parameters};
use super::{Put, ResponseStore, StoreError, StoredResponse};

/// Keeps responses in Redis, version 6 or later, on one server or a primary with replicas.
///
/// Redis expires them. If it evicts a response, or loses it in a restart or a failover, a repetition of its
/// request is handled again: use persistence and `maxmemory-policy noeviction`. Clones share a connection.
///
/// The Redis key is `polylock:response:` and the key of the lock. The namespace in the URL of the lock service
/// is no part of it: services that share a Redis and differ in that namespace alone need
/// [`with_namespace`](Self::with_namespace), or each gets the responses of the other.
///
/// A demoted server is left when it refuses a write. Until then, lookups may read it, and it may lack newer
/// responses: a repetition whose response is missing there is handled again.
///
/// # Examples
///
/// ```no_run
/// use std::sync::Arc;
///
/// use polylock_tower::Locker;
/// use polylock_tower::idempotency::{IdempotencyLayer, KeyScope, RedisResponses};
///
/// # async fn layer(payments: Locker) -> Result<IdempotencyLayer, Box<dyn std::error::Error>> {
/// let responses = RedisResponses::connect("redis://cache/0").await?;
/// let layer = IdempotencyLayer::new(payments, Arc::new(responses), KeyScope::shared())?;
/// # Ok(layer) }
/// ```
#[derive(Clone)]
pub struct RedisResponses {
    client: Client,
    connection: Arc<Mutex<Option<Arc<MultiplexedConnection>>>>,
    key_prefix: Arc<str>,
}

const KEY_PREFIX: &str = "polylock:response:";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl RedisResponses {
    /// Connects to `redis://[user:password@]host[:port][/database]`.
    ///
    /// It has none of the parameters of a lock URL, such as `namespace`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the URL is wrong or has an unknown parameter, if the server cannot be reached within
    /// 5 s, or if it is a replica or a node of a Redis Cluster. That check needs the right to `INFO` and is skipped
    /// without it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let unopened = StoreError::caused_by("the Redis of the responses cannot be opened");
        let store = Self {
            client: Client::open(url).map_err(unopened)?,
            connection: Arc::default(),
            key_prefix: KEY_PREFIX.into(),
        };
        let (scheme, _) = url.split_once(':').unwrap_or_default();
        let known: &[&str] = match scheme.to_ascii_lowercase().ends_with("unix") {
            true => &["db", "pass", "protocol", "user"],
            false => &["protocol"],
        };
        check_parameters(
            url,
            |name| known.contains(&name),
            "a Redis",
            "with_namespace",
        )?;
        store.connection().await.map_err(unopened)?;
        let checked = tokio::time::timeout(CONNECT_TIMEOUT, store.check_server()).await;
        let silent = |_| StoreError::new("the Redis of the responses does not answer");
        checked.map_err(silent)??;
        Ok(store)
    }

    /// Refuses a server that takes no responses, or not all: every request would be handled again.
    async fn check_server(&self) -> Result<(), StoreError> {
        let info: String = match self.ask(&redis::cmd("INFO")).await {
            Ok(info) => info,
            Err(error) if error.is_unrecoverable_error() => {
                let unopened = StoreError::caused_by("the Redis of the responses cannot be opened");
                return Err(unopened(error));
            }
            // A user may not have the right.
            Err(_) => return Ok(()),
        };
        let has = |line: &str| info.lines().any(|other| other == line);
        if has("role:slave") {
            return Err(StoreError::new("the Redis of the responses is a replica"));
        }
        if has("cluster_enabled:1") {
            let message = "the Redis of the responses is a node of a cluster";
            return Err(StoreError::new(message));
        }
        Ok(())
    }

    /// Stores responses under `polylock:responses:<namespace>:` and the key of the lock, apart from those of
    /// other namespaces and of none. Default: none.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the namespace does not have 1 to 64 bytes, or has a colon or a control character.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use polylock_tower::idempotency::RedisResponses;
    /// # async fn responses() -> Result<RedisResponses, Box<dyn std::error::Error>> {
    /// // The locks are those of redis://cache/?namespace=staging.
    /// let responses = RedisResponses::connect("redis://cache/").await?.with_namespace("staging")?;
    /// # Ok(responses) }
    /// ```
    pub fn with_namespace(mut self, namespace: &str) -> Result<Self, StoreError> {
        let namespace = Namespace::new(namespace).map_err(|e| StoreError::new(e.message()))?;
        // No key without a namespace begins like this.
        self.key_prefix = format!("polylock:responses:{}:", namespace.as_str()).into();
        Ok(self)
    }

    fn redis_key(&self, key: &LockKey) -> Vec<u8> {
        [self.key_prefix.as_bytes(), key.as_bytes()].concat()
    }

    async fn connection(&self) -> RedisResult<Arc<MultiplexedConnection>> {
        let mut open = self.connection.lock().await;
        if let Some(connection) = &*open {
            return Ok(Arc::clone(connection));
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            // The layer has a timeout of its own.
            .set_response_timeout(None);
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        Ok(Arc::clone(open.insert(Arc::new(connection.await?))))
    }

    /// Sends a command, and once more on a new connection if the first one is broken or cannot be opened: Redis
    /// closes idle connections. The first attempt may have been executed, so the command must be repeatable.
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match self.ask_once(command).await {
            Err(error) if error.is_unrecoverable_error() => self.ask_once(command).await,
            result => result,
        }
    }

    /// Sends a command. The next command reconnects if the connection is broken or its server is no
    /// primary, or if this command is dropped after a while: a connection without replies may be dead.
    async fn ask_once<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let used = self.connection().await?;
        let mut connection = MultiplexedConnection::clone(&used);
        let mut silence = Silence {
            store: self,
            used,
            since: Instant::now(),
            is_over: false,
        };
        let result = command.query_async(&mut connection).await;
        if result.as_ref().is_err_and(is_useless_after) {
            give_up(&mut *self.connection.lock().await, &silence.used);
        }
        silence.is_over = true;
        result
    }
}

/// Makes the next command connect anew, unless another connection has replaced `used`.
fn give_up(open: &mut Option<Arc<MultiplexedConnection>>, used: &Arc<MultiplexedConnection>) {
    if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, used)) {
        *open = None;
    }
}

/// Whether the connection is of no more use. A server that was demoted keeps its connections, although the
/// address may lead to another one by now.
fn is_useless_after(error: &RedisError) -> bool {
    let is_demoted = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::MasterDown | ServerErrorKind::ReadOnly)
    );
    is_demoted || error.is_unrecoverable_error()
}

/// A command that waits for its answer.
struct Silence<'a> {
    store: &'a RedisResponses,
    used: Arc<MultiplexedConnection>,
    since: Instant,
    is_over: bool,
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        // A command that holds the mutex is connecting, or finds out by its own silence.
        if !self.is_over
            && self.since.elapsed() >= SILENCE_LIMIT
            && let Ok(mut open) = self.store.connection.try_lock()
        {
            give_up(&mut open, &self.used);
        }
    }
}

/// An answer that takes longer is a reason to try another connection.
const SILENCE_LIMIT: Duration = Duration::from_millis(100);

/// Redis adds it to a time, in 63 bits.
const MAX_RETENTION_MILLIS: u64 = (i64::MAX / 4) as u64;

#[async_trait]
impl ResponseStore for RedisResponses {
    async fn get(&self, key: &LockKey) -> Result<Option<StoredResponse>, StoreError> {
        let unread = StoreError::caused_by("a response cannot be read");
        let found: Option<Vec<u8>> = self
            .ask(Cmd::new().arg("GET").arg(self.redis_key(key)))
            .await
            .map_err(unread)?;
        found.map(StoredResponse::from_bytes).transpose()
    }

    async fn put(
        &self,
        key: &LockKey,
        response: &StoredResponse,
        _: Option<FencingToken>,
        retention: Duration,
    ) -> Result<Put, StoreError> {
        let millis = u64::try_from(retention.as_millis()).unwrap_or(MAX_RETENTION_MILLIS);
        // A repetition of a `SET` that was executed finds this response, by the id of its execution.
        let mut set = redis::cmd("SET");
        set.arg(self.redis_key(key))
            .arg(response.to_bytes())
            .arg("NX");
        set.arg("PX").arg(millis.clamp(1, MAX_RETENTION_MILLIS));
        for _ in 0..MAX_ATTEMPTS {
            let unwritten = StoreError::caused_by("a response cannot be written");
            let is_set: bool = self.ask(&set).await.map_err(unwritten)?;
            if is_set {
                return Ok(Put::Stored);
            }
            // A missing response has expired meanwhile.
            if let Some(there) = self.get(key).await? {
                return Ok(Put::beside(&there, response));
            }
        }
        let message = "expired responses come and go under the key of a response";
        Err(StoreError::new(message))
    }
}

/// Without the URL, which may have a password.
impl fmt::Debug for RedisResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisResponses").finish_non_exhaustive()
    }
}
