use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, cmd};

use super::failure;
use crate::subject::Failure;
use crate::target::Probe;

#[derive(Debug)]
pub(super) struct Asker {
    connection: MultiplexedConnection,
    /// How many commands of its own the server has counted.
    asked: AtomicU64,
}

impl Asker {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        let asked = AtomicU64::new(0);
        Self { connection, asked }
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Failure> {
        let answer = command.query_async(&mut self.connection.clone()).await;
        let answer = answer.map_err(failure)?;
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(answer)
    }

    async fn info(&self, section: &str) -> Result<HashMap<String, String>, Failure> {
        let text: String = self.ask(cmd("INFO").arg(section)).await?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Ok(lines
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect())
    }

    /// A setting, where this user may read it.
    async fn setting(&self, name: &str) -> String {
        let answer = self.ask(cmd("CONFIG").arg("GET").arg(name)).await;
        let values: HashMap<String, String> = answer.unwrap_or_default();
        match values.into_values().next() {
            Some(value) if value.is_empty() => "none".to_owned(),
            Some(value) => value,
            None => "not told to this user".to_owned(),
        }
    }
}

#[async_trait]
impl Probe for Asker {
    async fn ping(&self) -> Result<(), Failure> {
        self.ask::<String>(&cmd("PING")).await.map(drop)
    }

    /// What it executes, commands inside of scripts included: it does not count them apart.
    async fn commands(&self) -> Result<Option<u64>, Failure> {
        let own = self.asked.load(Ordering::Relaxed);
        let stats = self.info("stats").await?;
        let executed = stats.get("total_commands_processed");
        let executed: Option<u64> = executed.and_then(|count| count.parse().ok());
        // The question counts once it is answered.
        Ok(executed.map(|executed| executed.saturating_sub(own)))
    }

    async fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut facts = BTreeMap::new();
        let mut add = |name: &str, value: String| facts.insert(name.to_owned(), value);
        let server = self.info("server").await?;
        // Valkey says what release of Redis it stands for as well.
        let version = match (server.get("valkey_version"), server.get("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => "unknown".to_owned(),
        };
        add("version", version);
        let memory = self.info("memory").await?;
        let replication = self.info("replication").await?;
        for (name, fact, section) in [
            ("maxmemory_policy", "maxmemory-policy", &memory),
            ("connected_slaves", "replicas", &replication),
        ] {
            if let Some(value) = section.get(name) {
                add(fact, value.clone());
            }
        }
        for name in ["appendonly", "appendfsync", "save", "maxmemory"] {
            add(name, self.setting(name).await);
        }
        add(
            "commands",
            "executed, those inside of scripts included".to_owned(),
        );
        Ok(facts)
    }
}
