//! The server's view of the clients of a site.

use std::time::Instant;

use lock_testkit::servers::MariaDbServer;

use super::{Kind, Mode, SOON, Site, ms, until};

impl Site {
    /// How many connections they have.
    pub(crate) async fn connections(&self) -> u64 {
        self.number(format!("SELECT count(*) {}", self.clients()))
            .await
    }

    /// How many transactions they have open.
    pub(crate) async fn transactions(&self) -> u64 {
        let clients = self.clients();
        self.number(match self.kind() {
            // Its list of them has the statements, and cannot be read if one is not UTF-8.
            Kind::MariaDb if MariaDbServer::is_mysql() => format!(
                "SELECT count(*) FROM performance_schema.threads
                 JOIN performance_schema.events_transactions_current e USING (thread_id)
                 WHERE e.state = 'ACTIVE' AND e.autocommit = 'NO'
                 AND processlist_id IN (SELECT id {clients})"
            ),
            Kind::MariaDb => format!(
                "SELECT count(*) FROM information_schema.innodb_trx
                 WHERE trx_mysql_thread_id IN (SELECT id {clients})"
            ),
            Kind::Postgres => format!("SELECT count(*) {clients} AND xact_start IS NOT NULL"),
        })
        .await
    }

    /// How many locks of the server's they have or wait for; for MariaDB how many statements run.
    pub(crate) async fn server_locks(&self) -> u64 {
        let clients = self.clients();
        match self.kind() {
            Kind::MariaDb => self.waiters().await,
            Kind::Postgres => {
                let locks = "SELECT count(*) FROM pg_locks WHERE pid IN (SELECT pid";
                self.number(format!("{locks} {clients})")).await
            }
        }
    }

    /// Something that grows with each of their statements; 0 without sessions.
    pub(crate) async fn last_statement(&self) -> u64 {
        let last = match self.kind() {
            Kind::MariaDb => "coalesce(max(query_id), 0)",
            Kind::Postgres => "coalesce(extract(epoch FROM max(query_start)) * 1e6, 0)::bigint",
        };
        self.number(format!("SELECT {last} {}", self.clients()))
            .await
    }

    /// How many of their statements wait for a lock.
    pub(crate) async fn waiters(&self) -> u64 {
        self.number(format!("SELECT count(*) {}", self.waiting()))
            .await
    }

    /// Whether a client waits for a lock, and says so where others see it.
    async fn has_waiter(&self, name: &str) -> bool {
        if self.is_session() {
            return self.waiters().await > 0;
        }
        let (now, key) = (self.now(), self.bytes(name.as_bytes()));
        let waiters = format!(
            "SELECT count(*) FROM {} WHERE kind = 1 AND lock_key = {key} AND (wanted_until > {now}
                 OR slot >= 2147483648 AND id IS NOT NULL AND expires_at > {now})",
            self.table
        );
        self.number(waiters).await > 0
    }

    /// Until a client waits, and does not just begin to.
    pub(crate) async fn until_it_waits(&self, name: &str) {
        let mut times = 0;
        until("it waits", async || {
            times = if self.has_waiter(name).await {
                times + 1
            } else {
                0
            };
            times > 10
        })
        .await;
    }

    pub(crate) async fn until_nothing_waits(&self, name: &str) {
        until("nothing waits", async || !self.has_waiter(name).await).await;
    }

    /// The clock of the server in microseconds, as an expression.
    pub(crate) fn now(&self) -> &'static str {
        match self.kind() {
            Kind::MariaDb => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
            Kind::Postgres => "extract(epoch FROM clock_timestamp()) * 1000000",
        }
    }

    /// Once all requests are done, there is no open transaction, no lock and no waiter.
    pub(crate) async fn assert_unlocked(&self) {
        until(&format!("{} is not locked", self.table), async || {
            self.transactions().await + self.server_locks().await == 0
        })
        .await;
    }

    /// Ends the statements that wait for a lock, and not their sessions.
    pub(crate) async fn cancel_waiters(&self) {
        let waiting = self.waiting();
        match self.kind() {
            Kind::MariaDb => {
                for row in self.sql(format!("SELECT id {waiting}")).await {
                    self.sql(kill("QUERY", &row[0])).await;
                }
            }
            Kind::Postgres => {
                self.sql(format!("SELECT pg_cancel_backend(pid) {waiting}"))
                    .await;
            }
        }
    }

    /// The server's number of the session that holds a lock, by its record.
    pub(crate) async fn holder(&self, name: &str) -> u64 {
        assert!(self.is_session(), "a lease has no session");
        let (kind, column) = match self.mode {
            Mode::Row => (3, "lock_key"),
            _ => (4, "name"),
        };
        let name = self.bytes(name.as_bytes());
        let of_holder = format!(
            "SELECT session FROM {} WHERE kind = {kind} AND {column} = {name} AND id IS NOT NULL",
            self.table
        );
        let deadline = Instant::now() + SOON;
        loop {
            let rows = self.sql(&of_holder).await;
            let session = rows.first().and_then(|row| row[0].parse().ok());
            if let Some(session) = session.filter(|session| *session != 0) {
                return session;
            }
            assert!(Instant::now() < deadline, "the lock has no holder");
            tokio::time::sleep(ms(20)).await;
        }
    }

    /// The server's numbers of all sessions.
    pub(crate) async fn sessions(&self) -> Vec<u64> {
        let number = match self.kind() {
            Kind::MariaDb => "id",
            Kind::Postgres => "pid",
        };
        let rows = self
            .sql(format!("SELECT {number} {}", self.clients()))
            .await;
        let number = |row: &Vec<String>| row[0].parse().expect("a number");
        rows.iter().map(number).collect()
    }

    /// Ends a session of the server's, if it is there.
    pub(crate) async fn kill(&self, session: u64) {
        let end = match self.kind() {
            Kind::MariaDb => kill("CONNECTION", &session.to_string()),
            Kind::Postgres => format!("SELECT pg_terminate_backend({session})"),
        };
        self.sql(end).await;
    }

    /// Ends all of them.
    pub(crate) async fn kill_all(&self) {
        for session in self.sessions().await {
            self.kill(session).await;
        }
    }

    /// Their sessions in the list of the server.
    fn clients(&self) -> String {
        let (database, table) = (&self.database, &self.table);
        match self.kind() {
            Kind::MariaDb => {
                let list = MariaDbServer::PROCESS_LIST;
                format!("FROM {list} WHERE user = 'test' AND db = '{database}'")
            }
            Kind::Postgres => {
                let list = "FROM pg_stat_activity WHERE usename = 'test'";
                format!("{list} AND application_name = '{table}'")
            }
        }
    }

    /// Those that wait for a lock; of MariaDB those whose statement runs.
    fn waiting(&self) -> String {
        let waits = match self.kind() {
            Kind::MariaDb => "command <> 'Sleep'",
            Kind::Postgres => "wait_event_type = 'Lock'",
        };
        format!("{} AND {waits}", self.clients())
    }
}

/// It is an error to kill a session that has ended.
pub(crate) fn kill(what: &str, session: &str) -> String {
    format!(
        "DELIMITER //\n/*M!100000 BEGIN NOT ATOMIC
             DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; */
             KILL {what} {session} /*M!100000 ;
         END */ //\n"
    )
}
