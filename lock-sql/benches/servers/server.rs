use std::fs;

use lock_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Database {
    MariaDb,
    Postgres,
}

impl Database {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::Postgres => "PostgreSQL",
        }
    }

    pub(crate) fn is_called(self, name: &str) -> bool {
        self.title().eq_ignore_ascii_case(name) || (self == Self::Postgres && name == "postgres")
    }
}

/// A server on a processor of its own.
pub(crate) enum Server {
    MariaDb(MariaDbServer),
    Postgres(PostgresServer),
}

impl Server {
    /// `is_durable` says whether a commit waits for the disk.
    pub(crate) fn start(database: Database, is_durable: bool) -> Self {
        let server = match database {
            Database::MariaDb => {
                let flush = if is_durable { "1" } else { "0" };
                let options = MariaDbOptions::new()
                    .with_config("innodb_flush_log_at_trx_commit", flush)
                    .with_config("plugin_load_add", "metadata_lock_info");
                Self::MariaDb(MariaDbServer::start(options))
            }
            Database::Postgres => {
                let options = PostgresOptions::new().with_durability(is_durable);
                Self::Postgres(PostgresServer::start(options))
            }
        };
        let pid = match &server {
            Self::MariaDb(server) => server.pid(),
            Self::Postgres(server) => server.pid(),
        };
        pin_all(i32::try_from(pid).unwrap(), 0);
        server
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::MariaDb(server) => server.url(),
            Self::Postgres(server) => server.url(),
        }
    }

    /// A number that the server is asked for on a connection of an administrator's.
    pub(crate) fn number(&self, postgres: &str, mariadb: &str) -> u64 {
        let rows = match self {
            Self::MariaDb(server) => server.sql(mariadb),
            Self::Postgres(server) => server.sql(postgres),
        };
        rows[0].last().unwrap().parse().unwrap()
    }

    /// How many connections the locks have.
    pub(crate) fn connections(&self) -> u64 {
        self.number(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'test'",
            "SELECT count(*) FROM information_schema.processlist WHERE user = 'test'",
        )
    }

    /// How many of these are sessions that locks live in.
    pub(crate) fn sessions(&self) -> u64 {
        self.number(
            "SELECT count(DISTINCT a.pid) FROM pg_stat_activity a LEFT JOIN pg_locks l
                 ON l.pid = a.pid AND l.locktype = 'advisory' AND l.granted
             WHERE a.usename = 'test' AND (a.state LIKE 'idle in%' OR l.pid IS NOT NULL)",
            "SELECT count(DISTINCT l.thread_id) FROM information_schema.metadata_lock_info l
             WHERE l.lock_type = 'User lock'",
        )
    }

    /// Statements, or transactions where each is one, since the server began.
    pub(crate) fn statements(&self) -> u64 {
        self.number(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'test'",
            "SHOW GLOBAL STATUS LIKE 'Questions'",
        )
    }
}

/// With its threads and its processes; those that it starts later inherit it.
fn pin_all(pid: i32, processor: usize) {
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let thread = thread.unwrap();
        let id: i32 = thread.file_name().to_str().unwrap().parse().unwrap();
        pin(id, processor);
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            // It may have ended since.
            if fs::exists(format!("/proc/{child}/task")).unwrap() {
                pin_all(child.parse().unwrap(), processor);
            }
        }
    }
}

pub(crate) fn pin(pid: i32, processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    let pid = rustix::process::Pid::from_raw(pid);
    // A machine with one processor has nothing to choose.
    let _unpinned = rustix::thread::sched_setaffinity(pid, &set);
}
