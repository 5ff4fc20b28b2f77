//! Redis: the minimal commands that exclude, and what the server says of itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock::LockUrl;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError, RedisResult, Script, cmd,
};

use super::names::unique;
use super::poll::poll;
use crate::connection::Opened;
use crate::probe::{self, Probe, TargetFacts};
use crate::subject::{Failure, INVALID, LOST, REFUSED, Subject};

pub(super) async fn probe(url: &LockUrl) -> Result<Arc<dyn Probe>, Failure> {
    Ok(Arc::new(RedisProbe(connect(url).await?)))
}

pub(super) async fn bare(url: &LockUrl, of: &str) -> Result<Opened, Failure> {
    let lock = BareRedisLock::new(connect(url).await?, url.namespace()).await?;
    let commands = "SET NX PX, and a script that compares and deletes";
    let mut opened = Opened::bare(of, commands, lock);
    opened.has_queue = false;
    Ok(opened)
}

/// What is not said in the URL is as the locks have it.
async fn connect(url: &LockUrl) -> Result<MultiplexedConnection, Failure> {
    let mut params = url.params();
    let numbers = 0..=1_000_000;
    let (address, username, password, database) = match url.scheme() {
        "redis+unix" => (
            ConnectionAddr::Unix(url.expect_file()?.to_owned()),
            params.string("username"),
            params.string("password"),
            params.integer("database", numbers)?.unwrap_or(0),
        ),
        _ => {
            let host = url.expect_host()?;
            let database = match url.path().trim_start_matches('/') {
                "" => Some(0),
                number => number.parse().ok().filter(|n| numbers.contains(n)),
            };
            let wrong = || Failure::new(INVALID, "the path of the URL is no database number");
            (
                ConnectionAddr::Tcp(host.name.clone(), host.port_or(6379)),
                url.username(),
                url.password(),
                database.ok_or_else(wrong)?,
            )
        }
    };
    let mut settings = RedisConnectionInfo::default().set_db(database);
    if let Some(username) = username {
        settings = settings.set_username(username);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    let info = address.into_connection_info().map_err(failure)?;
    let info = info
        .set_redis_settings(settings)
        .set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = Client::open(info).map_err(failure)?;
    // A timer for each reply is not minimal.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.map_err(failure)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: RedisError) -> Failure {
    let kind = match error.is_io_error() || error.is_timeout() {
        true => "unavailable",
        false => REFUSED,
    };
    Failure::of(kind, &error)
}

/// What a lock in Redis takes at least. It polls while another holder has it, and a future that is
/// dropped may leave the key for a ttl.
#[derive(Clone)]
struct BareRedisLock {
    connection: MultiplexedConnection,
    /// What stands before the names.
    prefix: Arc<str>,
    /// Of the script that releases.
    hash: Arc<str>,
}

#[derive(Clone)]
struct BareRedisKey {
    name: Arc<str>,
    millis: u64,
}

struct HeldRedisLock {
    key: Arc<str>,
    value: String,
}

impl BareRedisLock {
    /// Acquires and releases one, so that a user who may not do that is told here. The server has
    /// the script then: a user who may run scripts need not be one who may load them.
    async fn new(connection: MultiplexedConnection, namespace: &str) -> Result<Self, Failure> {
        let prefix = match namespace {
            "" => "lock-bench-bare:".to_owned(),
            namespace => format!("{namespace}:lock-bench-bare:"),
        };
        let least = Self {
            connection,
            prefix: prefix.into(),
            hash: Script::new(COMPARE_AND_DELETE).get_hash().into(),
        };
        let first = least.key(&unique(), Duration::from_secs(5))?;
        if let Some(held) = least.set(&first).await? {
            let deleted = least.delete("EVAL", COMPARE_AND_DELETE, &held).await;
            deleted.map_err(failure)?;
        }
        Ok(least)
    }

    /// How many keys it deleted.
    async fn delete(&self, how: &str, script: &str, held: &HeldRedisLock) -> RedisResult<u32> {
        let mut delete = cmd(how);
        delete.arg(script).arg(1).arg(&*held.key).arg(&held.value);
        delete.query_async(&mut self.connection.clone()).await
    }

    async fn set(&self, key: &BareRedisKey) -> Result<Option<HeldRedisLock>, Failure> {
        let (millis, key, value) = (key.millis, Arc::clone(&key.name), unique());
        let mut set = cmd("SET");
        set.arg(&*key).arg(&value).arg("NX").arg("PX").arg(millis);
        let answer = set.query_async(&mut self.connection.clone()).await;
        let taken: Option<String> = answer.map_err(failure)?;
        Ok(taken.map(|_| HeldRedisLock { key, value }))
    }
}

impl Subject for BareRedisLock {
    type Key = BareRedisKey;
    type Held = HeldRedisLock;

    fn key(&self, name: &str, ttl: Duration) -> Result<BareRedisKey, Failure> {
        Ok(BareRedisKey {
            name: format!("{}{name}", self.prefix).into(),
            millis: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1),
        })
    }

    async fn acquire(
        &self,
        key: &BareRedisKey,
        wait: Duration,
    ) -> Result<Option<HeldRedisLock>, Failure> {
        poll(wait, || self.set(key)).await
    }

    async fn release(&self, held: HeldRedisLock) -> Result<(), Failure> {
        let deleted = match self.delete("EVALSHA", &self.hash, &held).await {
            // The server was restarted, or its scripts were flushed.
            Err(error) if error.code() == Some("NOSCRIPT") => {
                self.delete("EVAL", COMPARE_AND_DELETE, &held).await
            }
            deleted => deleted,
        };
        match deleted.map_err(failure)? {
            1 => Ok(()),
            _ => Err(Failure::new(LOST, "the key has another value, or none")),
        }
    }
}

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

struct RedisProbe(MultiplexedConnection);

impl RedisProbe {
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Failure> {
        let answer = command.query_async(&mut self.0.clone()).await;
        answer.map_err(failure)
    }

    async fn info(&self, section: &str) -> Result<HashMap<String, String>, Failure> {
        let text: String = self.ask(cmd("INFO").arg(section)).await?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Ok(lines.map(owned).collect())
    }
}

#[async_trait]
impl Probe for RedisProbe {
    async fn ping(&self) -> Result<(), Failure> {
        self.ask::<String>(&cmd("PING")).await.map(drop)
    }

    /// What it executes, commands inside of scripts included: it does not count them apart.
    async fn commands(&self) -> Result<Option<u64>, Failure> {
        let stats = self.info("stats").await?;
        let executed = stats.get("total_commands_processed");
        Ok(executed.and_then(|count| count.parse().ok()))
    }

    async fn facts(&self) -> Result<TargetFacts, Failure> {
        let server = self.info("server").await?;
        // Valkey says what release of Redis it stands for as well.
        let version = match (server.get("valkey_version"), server.get("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => "unknown".to_owned(),
        };
        let commands = "executed, those inside of scripts included".to_owned();
        let mut facts = vec![("version", version), ("commands", commands)];
        for (section, name, fact) in [
            ("memory", "maxmemory_policy", "maxmemory-policy"),
            ("replication", "connected_slaves", "replicas"),
        ] {
            let value = self.info(section).await?.remove(name);
            facts.extend(value.map(|value| (fact, value)));
        }
        for name in ["appendonly", "appendfsync", "save", "maxmemory"] {
            let answer = self.ask(cmd("CONFIG").arg("GET").arg(name)).await;
            let values: HashMap<String, String> = answer.unwrap_or_default();
            let value = match values.into_values().next() {
                Some(value) if value.is_empty() => "none".to_owned(),
                Some(value) => value,
                None => "not told to this user".to_owned(),
            };
            facts.push((name, value));
        }
        Ok(probe::facts(facts))
    }
}
