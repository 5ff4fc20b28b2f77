//! One program, every backend: the configuration says where the locks are, and the code that does
//! the work does not know it.
//!
//! ```console
//! $ cargo run -p choose-backend
//! $ LOCK_DEFAULT_BACKEND=staging STAGING_URL=sqlite:/tmp/locks.db cargo run -p choose-backend
//! $ LOCK_DEFAULT_BACKEND=prod PROD_URL=redis://cache \
//!     cargo run -p choose-backend --features polylock/redis
//! ```
//!
//! What the work needs, a class of locks requires in [`lock.toml`](../lock.toml). Connecting fails
//! if the backend does not have it: a config error shows at the start, not in the first request.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use polylock::FencingToken;
use polylock::config::{ConfiguredLocks, Loader, Scope};
use polylock::fencing::StaleToken;
use tokio::task::JoinSet;

/// A service reads the file at its start, here it is part of the program.
const CONFIG: &str = include_str!("../lock.toml");
const INSTANCES: usize = 2;
const TICKETS: u64 = 40;

#[tokio::main]
async fn main() -> Result<()> {
    sell_tickets(&Loader::new(), CONFIG).await?;

    let directory = tempfile::tempdir()?;
    let sqlite = format!("sqlite:{}", directory.path().join("locks.db").display());
    let refused = require("queue", Loader::new().with_url(sqlite)).await;
    let refused = refused.err().context("SQLite passed as fair")?;
    println!("refused at the start: {refused}");
    Ok(())
}

/// Connects for one class of locks.
async fn require(class: &str, loader: Loader) -> Result<()> {
    let loader = loader.with_scope(Scope::Class(class.to_owned()));
    loader.parse(CONFIG)?.connect().await?;
    Ok(())
}

/// Sells tickets at the counters of two instances, and none twice.
async fn sell_tickets(loader: &Loader, text: &str) -> Result<&'static str> {
    let scope = Scope::Class("tickets".to_owned());
    let config = loader.clone().with_scope(scope).parse(text)?;
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        instances.push(config.connect().await?);
    }
    let office = Arc::new(Office::default());
    let mut sales = JoinSet::new();
    for (_, instance) in (0..TICKETS).zip(instances.iter().cycle()) {
        let (locks, office) = (instance.class("tickets")?.clone(), Arc::clone(&office));
        sales.spawn(async move { sell(&locks, &office).await });
    }
    let sold = sales.join_all().await.into_iter();
    let mut sold = sold.collect::<Result<Vec<_>>>()?;
    sold.sort_unstable();
    let backend = instances[0].class("tickets")?.capabilities().backend;
    for instance in instances {
        instance.shutdown(Duration::from_secs(5)).await;
    }
    let is_each_sold = sold.into_iter().eq(1..=TICKETS);
    ensure!(is_each_sold, "a ticket was sold twice or not at all");
    println!("{INSTANCES} instances on {backend} sold {TICKETS} tickets, none twice");
    Ok(backend)
}

/// Reads and writes in two steps, so that two at a time would sell one ticket.
async fn sell(locks: &ConfiguredLocks, office: &Office) -> Result<u64> {
    let guard = locks.lock("tickets").await?;
    let token = guard.fencing_token().context("no fencing")?;
    let ticket = office.last() + 1;
    tokio::task::yield_now().await;
    office.write(ticket, token)?;
    guard.release().await?;
    Ok(ticket)
}

/// The database: the last ticket, and the largest token that has written it.
#[derive(Default)]
struct Office(Mutex<(u64, u64)>);

impl Office {
    fn last(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn write(&self, ticket: u64, token: FencingToken) -> Result<(), StaleToken> {
        let mut row = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if token.value() < row.1 {
            return Err(StaleToken::new("tickets", token));
        }
        *row = (ticket, token.value());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lock_testkit::servers::{
        MariaDbServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
    };

    use super::*;

    #[tokio::test]
    async fn the_same_program_works_on_every_backend() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let redis = RedisServer::start(RedisOptions::new());
        let sqlite = format!("sqlite:{}", directory.path().join("locks.db").display());
        let places = [
            ("memory", "memory:every-backend".to_owned()),
            ("mysql", MariaDbServer::shared().database()),
            ("postgres", PostgresServer::shared().database()),
            ("redis", redis.url()),
            ("sqlite", sqlite),
            ("zookeeper", ZooKeeperServer::shared().url()),
        ];
        for (backend, url) in places {
            let loader = Loader::new().with_url(url);
            let used = sell_tickets(&loader, CONFIG).await.context(backend)?;
            assert_eq!(used, backend);
        }
        Ok(())
    }

    #[tokio::test]
    async fn the_environment_chooses_the_backend() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let staging = format!("sqlite:{}", directory.path().join("locks.db").display());
        let loader = Loader::new().with_environment(move |name| match name {
            "LOCK_DEFAULT_BACKEND" => Some("staging".into()),
            "STAGING_URL" => Some(staging.clone().into()),
            _ => None,
        });
        assert_eq!(sell_tickets(&loader, CONFIG).await?, "sqlite");
        Ok(())
    }

    #[tokio::test]
    async fn a_backend_that_lacks_what_a_class_requires_is_refused() {
        let redis = RedisServer::start(RedisOptions::new());
        let refused = require("ledger", Loader::new().with_url(redis.url())).await;
        let refused = refused.expect_err("a single Redis can lose writes");
        let message = refused.to_string();
        let why = "requires strong-fencing, which redis";
        assert!(message.contains(why), "{message}");
    }

    #[tokio::test]
    async fn instances_with_a_store_each_are_found_out() {
        let text = "backend.main.url = 'memory:'\n[class.tickets]\nrequire = ['fencing']\n";
        assert!(sell_tickets(&Loader::new(), text).await.is_err());
    }
}
