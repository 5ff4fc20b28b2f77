use std::collections::BTreeMap;

use async_trait::async_trait;
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, query_scalar};
use tokio::sync::Mutex;

use super::super::sql::failure;
use crate::subject::Failure;
use crate::target::Probe;

#[derive(Debug)]
pub(super) struct Asker(Mutex<Asking>);

#[derive(Debug)]
struct Asking {
    connection: PgConnection,
    /// How many statements of its own the server has counted.
    asked: u64,
}

impl Asker {
    pub(super) fn new(connection: PgConnection) -> Self {
        let asked = 0;
        Self(Mutex::new(Asking { connection, asked }))
    }
}

impl Asking {
    /// Statements of this database; none unless `pg_stat_statements` is loaded, created in this
    /// database, and may be read.
    ///
    /// The transactions of `pg_stat_database` would always be there, but sessions report them up to
    /// ten seconds late.
    async fn statements(&mut self) -> Result<Option<u64>, Failure> {
        let counted = query_scalar::<_, Option<i64>>(COUNT)
            .fetch_one(&mut self.connection)
            .await;
        match counted {
            // The question counts once it is answered.
            Ok(Some(counted)) => {
                let counted = u64::try_from(counted).unwrap_or_default();
                let others = counted.saturating_sub(self.asked);
                self.asked += 1;
                Ok(Some(others))
            }
            Ok(None) | Err(sqlx::Error::Database(_)) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    }

    async fn setting(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let setting = query_scalar("SELECT current_setting($1, true)").bind(name);
        let setting = setting.fetch_one(&mut self.connection).await;
        self.asked += 1;
        setting.map_err(failure)
    }
}

const COUNT: &str = "SELECT sum(calls)::bigint FROM pg_stat_statements WHERE dbid = (
    SELECT oid FROM pg_database WHERE datname = current_database())";

#[async_trait]
impl Probe for Asker {
    async fn ping(&self) -> Result<(), Failure> {
        let mut asking = self.0.lock().await;
        // An empty query, which is no statement.
        asking.connection.ping().await.map_err(failure)
    }

    async fn commands(&self) -> Result<Option<u64>, Failure> {
        self.0.lock().await.statements().await
    }

    async fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut asking = self.0.lock().await;
        let mut facts = BTreeMap::new();
        for name in SETTINGS {
            let value = match asking.setting(name).await? {
                Some(value) if value.is_empty() => "none".to_owned(),
                Some(value) => value,
                None => continue,
            };
            match *name {
                "server_version" => {
                    facts.insert("version".to_owned(), format!("PostgreSQL {value}"))
                }
                name => facts.insert(name.to_owned(), value),
            };
        }
        let commands = match asking.statements().await? {
            Some(_) => "statements, as pg_stat_statements has them",
            None => "not counted: pg_stat_statements is not to be read in this database",
        };
        facts.insert("commands".to_owned(), commands.to_owned());
        Ok(facts)
    }
}

const SETTINGS: &[&str] = &[
    "fsync",
    "full_page_writes",
    "server_version",
    "synchronous_commit",
    "synchronous_standby_names",
    "wal_sync_method",
];
