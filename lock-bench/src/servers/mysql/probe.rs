use std::collections::BTreeMap;

use async_trait::async_trait;
use sqlx::mysql::MySqlConnection;
use sqlx::{Connection as _, query_as};
use tokio::sync::Mutex;

use super::super::sql::failure;
use crate::subject::Failure;
use crate::target::Probe;

#[derive(Debug)]
pub(super) struct Asker(Mutex<Asking>);

#[derive(Debug)]
struct Asking {
    connection: MySqlConnection,
    /// How many statements of its own the server has counted.
    asked: u64,
}

impl Asker {
    pub(super) fn new(connection: MySqlConnection) -> Self {
        let asked = 0;
        Self(Mutex::new(Asking { connection, asked }))
    }
}

impl Asking {
    /// Names and values.
    async fn show(&mut self, what: &'static str) -> Result<Vec<(String, String)>, Failure> {
        // A statement counts before it is answered.
        self.asked += 1;
        let rows = query_as(what).fetch_all(&mut self.connection).await;
        rows.map_err(failure)
    }
}

#[async_trait]
impl Probe for Asker {
    async fn ping(&self) -> Result<(), Failure> {
        let mut asking = self.0.lock().await;
        // A command of the protocol, which is no statement.
        asking.connection.ping().await.map_err(failure)
    }

    async fn commands(&self) -> Result<Option<u64>, Failure> {
        let mut asking = self.0.lock().await;
        let rows = asking.show("SHOW GLOBAL STATUS LIKE 'Questions'").await?;
        let questions = rows
            .first()
            .and_then(|(_, count)| count.parse::<u64>().ok());
        Ok(questions.map(|questions| questions.saturating_sub(asking.asked)))
    }

    async fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut asking = self.0.lock().await;
        let mut facts: BTreeMap<_, _> = asking.show(SETTINGS).await?.into_iter().collect();
        if let Some(version) = facts.remove("version") {
            let comment = facts.remove("version_comment").unwrap_or_default();
            let is_mariadb = version.contains("MariaDB") || comment.contains("MariaDB");
            let name = if is_mariadb { "MariaDB" } else { "MySQL" };
            let number = version.split('-').next().unwrap_or_default();
            facts.insert("version".to_owned(), format!("{name} {number}"));
        }
        let commands = "statements of all clients (Questions)".to_owned();
        facts.insert("commands".to_owned(), commands);
        Ok(facts)
    }
}

const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_doublewrite',
    'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'version', 'version_comment')";
