//! PostgreSQL: a server of a test or of a test run, and a standby.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::database::{DatabaseClient, Dialect};
use super::port::free_port;
use super::process::Account;
use super::server_process::{Service, Setup, Site, deref_to, setup_options, started};
use super::template::{DATA, Template, if_there};
use super::{DatabaseServer, ServerProcess, SharedDatabase, TestCertificates};
use crate::command::run;
use crate::wait;

/// One PostgreSQL server, killed when the value is dropped.
///
/// It has no databases `postgres` and `template0`. Under root it runs as the user `postgres` or
/// `nobody`.
#[derive(Debug)]
pub struct PostgresServer {
    server: DatabaseServer,
    options: PostgresOptions,
}

impl PostgresServer {
    /// Starts one and waits until it takes connections: 0.2 s on an idle machine, and up to 1 s while
    /// many servers come and go, because ext4 does not reuse the inode of a file for 35 s. The first
    /// of its version takes 2 s; its data stay in the temporary directory for those that follow.
    #[must_use]
    pub fn start(options: PostgresOptions) -> Self {
        started("PostgreSQL", move || {
            let server = Self::start_at(free_port()?, options.clone())?;
            server.add_users()?;
            Ok(server)
        })
    }

    /// Starts one at this port; fails if another program has bound it in the meantime.
    fn start_at(port: u16, options: PostgresOptions) -> io::Result<Self> {
        let process = ServerProcess::start_at(port, options.setup.clone(), options.clone())?;
        let server = DatabaseServer::new(process, &DIALECT);
        Ok(Self { server, options })
    }

    /// The one server that all tests of a run use, started by the first that asks.
    pub fn shared() -> SharedDatabase {
        SharedDatabase::join(&DIALECT, || Self::start(PostgresOptions::new()).server)
    }

    pub(super) fn options(&self) -> &PostgresOptions {
        &self.options
    }

    fn add_users(&self) -> io::Result<()> {
        let create = |(name, password): &(String, String)| {
            let (name, password) = (identifier(name), literal(password));
            format!("CREATE ROLE {name} LOGIN PASSWORD {password};\n")
        };
        let statements: String = self.options.users().iter().map(create).collect();
        if statements.is_empty() {
            return Ok(());
        }
        self.try_sql(&statements).map(drop)
    }
}

deref_to!(PostgresServer, server: DatabaseServer);

static DIALECT: Dialect = Dialect {
    name: "postgres",
    scheme: "postgres",
    superuser: SUPERUSER,
    socket,
    command: psql,
    rows,
    count: "SELECT count(*) FROM pg_stat_activity WHERE usename = 'test'",
    create: ("CREATE DATABASE ", " OWNER test"),
};

fn socket(dir: &Path, port: u16) -> PathBuf {
    dir.join(format!(".s.PGSQL.{port}"))
}

fn psql(client: &DatabaseClient, database: &str) -> io::Result<Command> {
    let mut command = Command::new(program("psql")?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command
        .args(["-X", "-q", "-A", "-t", "-w", "-F", FIELD, "-0"])
        .args(["-v", "ON_ERROR_STOP=1", "-f", "-", "-h"])
        .arg(&client.dir)
        .args(["-p", &client.port.to_string()])
        .args(["-U", SUPERUSER, "-d", database])
        .env("PGPASSWORD", SUPERUSER)
        // Those of the server are for the code under test.
        .env("PGOPTIONS", "-c statement_timeout=0 -c lock_timeout=0")
        .env("PGCONNECT_TIMEOUT", "5");
    Ok(command)
}

fn rows(printed: &str) -> Vec<Vec<String>> {
    let fields = |row: &str| row.split(FIELD).map(str::to_owned).collect();
    printed.split_terminator('\0').map(fields).collect()
}

/// Text as SQL writes it.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name as SQL writes it.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

const SUPERUSER: &str = "postgres";

/// Between the fields of a row; none of the texts has it.
const FIELD: &str = "\u{1f}";

/// A standby that follows another server by asynchronous streaming, and is a server of its own: it
/// can be stopped, killed and [restarted](crate::servers::ServerProcess::restart). It takes reads until it is
/// [promoted](Self::promote).
#[derive(Debug)]
pub struct PostgresStandby(PostgresServer);

impl PostgresStandby {
    /// Copies the data of this server, starts the standby with the same options and waits until it
    /// takes connections: 0.5 to 1 s. The server does not wait for it at commit.
    #[must_use]
    pub fn of(primary: &PostgresServer) -> Self {
        let mut options = primary.options().clone();
        options.primary = Some(Primary {
            dir: primary.dir().to_owned(),
            port: primary.port(),
        });
        let server = started("a standby", || {
            PostgresServer::start_at(free_port()?, options.clone())
        });
        Self(server)
    }

    /// Makes it a server that takes writes, and waits until it does. It has what it has received.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote(true, 60)"), [["t"]]);
    }

    /// Cuts it off from the other server for good: what is committed there from here on is missing
    /// when it is promoted.
    pub fn detach(&self) {
        self.sql("ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf()");
        self.wait_for("SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)");
    }

    /// Waits until readers see here what is committed on the other server at the time of the call.
    pub fn catch_up(&self, primary: &PostgresServer) {
        let rows = primary.sql(FLUSH);
        let position = rows.last().expect("BUG: it asks for a position")[0].clone();
        self.wait_for(&format!(
            "SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn"
        ));
    }

    fn wait_for(&self, condition: &str) {
        wait(condition, || self.sql(condition) == [["t"]]);
    }
}

deref_to!(PostgresStandby, 0: PostgresServer);

/// What is committed is sent once it is flushed, which a commit without `synchronous_commit` does not
/// wait for. Where the next record goes would be past the header of a page that is not sent yet.
const FLUSH: &str = "SET synchronous_commit = local;
    SELECT pg_logical_emit_message(true, '', '');
    SELECT pg_current_wal_flush_lsn()";

/// How a [`PostgresServer`] is set up. By default what is committed survives
/// a [`kill`](crate::servers::ServerProcess::kill) but not a power failure, and everything else is as
/// PostgreSQL has it, with less memory.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    setup: Setup,
    tls: Option<TestCertificates>,
    /// Whose data it starts with; none for new data.
    primary: Option<Primary>,
    users: Vec<(String, String)>,
}

setup_options!(PostgresOptions);

impl PostgresOptions {
    /// Sets `fsync`, which is off by default. `synchronous_commit` stays on.
    #[must_use]
    pub fn with_durability(self, on: bool) -> Self {
        self.with_config("fsync", if on { "on" } else { "off" })
    }

    /// Takes connections by TCP with TLS only.
    #[must_use]
    pub fn with_tls(mut self, files: &TestCertificates) -> Self {
        self.tls = Some(files.clone());
        self
    }

    /// Adds a role that may log in and nothing else.
    #[must_use]
    pub fn with_user(mut self, name: &str, password: &str) -> Self {
        self.users.push((name.to_owned(), password.to_owned()));
        self
    }

    pub(super) fn users(&self) -> &[(String, String)] {
        &self.users
    }

    /// The lines of `pg_hba.conf`. The socket is for the testkit, with TLS or without.
    fn access(&self) -> String {
        let host = if self.tls.is_some() {
            "hostssl"
        } else {
            "host"
        };
        let clients = match self.setup.host {
            Some(_) => "198.18.0.0/15",
            None => "127.0.0.1/32",
        };
        format!(
            "local all postgres trust\n\
             local replication postgres trust\n\
             local all all scram-sha-256\n\
             {host} all all {clients} scram-sha-256\n\
             {host} replication all {clients} scram-sha-256\n"
        )
    }
}

const DEFAULTS: [(&str, &str); 8] = [
    ("fsync", "off"),
    // Memory in /dev/shm would outlive a server that is killed.
    ("dynamic_shared_memory_type", "mmap"),
    ("huge_pages", "off"),
    ("jit", "off"),
    ("max_connections", "500"),
    ("shared_buffers", "32MB"),
    // For a standby that was away.
    ("wal_keep_size", "64MB"),
    ("log_line_prefix", "%m [%p] %u@%d "),
];

const TLS: [(&str, &str); 3] = [
    ("ssl", "on"),
    ("ssl_cert_file", "server.pem"),
    ("ssl_key_file", "server.key"),
];

/// The server that a standby follows.
#[derive(Clone, Debug)]
struct Primary {
    /// Its directory has the socket.
    dir: PathBuf,
    port: u16,
}

impl Service for PostgresOptions {
    fn accounts(&self) -> &'static [&'static str] {
        &["postgres", "nobody"]
    }

    fn configure(&self, site: &Site<'_>) -> io::Result<()> {
        match &self.primary {
            Some(primary) => primary.copy(site)?,
            None => make_data(site.dir, site.account)?,
        }
        let directory = literal(&site.dir.to_string_lossy());
        let mut lines = vec![
            format!("port = {}", site.port),
            format!("unix_socket_directories = {directory}"),
        ];
        let tls = self.tls.as_ref().map(|_| &TLS[..]);
        let config = self.setup.configuration(&DEFAULTS, tls, "listen_addresses");
        for (name, value) in config {
            lines.push(format!("{name} = {}", literal(&value)));
        }
        let data = Path::new(DATA);
        site.write(data.join("postgresql.conf"), lines.join("\n") + "\n")?;
        site.write(data.join("pg_hba.conf"), self.access())?;
        match &self.tls {
            Some(tls) => tls.give_to(site, data),
            None => Ok(()),
        }
    }

    fn command(&self, site: &Site<'_>) -> io::Result<Vec<OsString>> {
        // The process in the file is gone, and another one may have its id now.
        let data = site.dir.join(DATA);
        if_there(fs::remove_file(data.join(PID_FILE)))?;
        Ok(vec![program("postgres")?.into(), "-D".into(), data.into()])
    }

    /// As `pg_ctl` does: the last line of the file is what the process does. Each start removes the file.
    fn is_ready(&self, site: &Site<'_>) -> bool {
        let text = fs::read_to_string(site.dir.join(DATA).join(PID_FILE)).unwrap_or_default();
        text.lines()
            .last()
            .is_some_and(|last| last.trim() == "ready")
    }

    fn farewell(&self) -> &'static str {
        FAREWELL
    }
}

impl Primary {
    fn copy(&self, site: &Site<'_>) -> io::Result<()> {
        // By the socket, which asks for no password.
        let program = program("pg_basebackup")?;
        let mut copy = site.account.command(&program, site.dir);
        copy.args(["-D", DATA, "-R", "-X", "stream", "-c", "fast", "-w"])
            .args(["--no-sync", "-U", SUPERUSER, "-h"])
            .arg(&self.dir)
            .args(["-p", &self.port.to_string()]);
        run(&mut copy, "").map(drop)
    }
}

/// A program of the newest PostgreSQL that is installed, past the wrappers of Debian.
fn program(name: &str) -> io::Result<PathBuf> {
    let version = |dir: &PathBuf| dir.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = fs::read_dir(PLACE).into_iter().flatten();
    installed
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|dir| dir.join("bin/postgres").exists())
        .max_by_key(version)
        .map(|dir| dir.join("bin").join(name))
        .ok_or_else(|| io::Error::other(format!("no PostgreSQL is installed in {PLACE}")))
}

fn make_data(dir: &Path, account: &Account) -> io::Result<()> {
    let initdb = program("initdb")?;
    let template = Template {
        server: "postgres",
        program: &initdb,
        recipe: &format!("{INITDB:?} {STATEMENTS}"),
        account,
    };
    template.copy(&dir.join(DATA), |draft| {
        let mut init = account.command(&initdb, draft);
        run(init.args(["-D", DATA]).args(INITDB), "")?;
        let mut single = account.command(&program("postgres")?, draft);
        single.args(["--single", "-F", "-D", DATA, "-c", "min_wal_size=2MB"]);
        run(single.arg("template1"), STATEMENTS).map(drop)
    })
}

const PLACE: &str = "/usr/lib/postgresql";

/// Bytes compare as bytes, and small segments of the log make small copies.
const INITDB: [&str; 8] = [
    "--username=postgres",
    "--encoding=UTF8",
    "--locale=C",
    "--auth=trust",
    "--wal-segsize=1",
    "--no-sync",
    "--no-instructions",
    "--data-checksums",
];

/// One a line. A server of two databases has half the files of one of four, and a file system is
/// slow to make many where many were deleted just before. The password of `test` is its name, hashed
/// once and not 4,096 times, which takes a client that is not optimized 80 ms at each login.
const STATEMENTS: &str = "\
ALTER ROLE postgres PASSWORD 'postgres'
CREATE ROLE test LOGIN PASSWORD 'SCRAM-SHA-256$1:c2FsdCBvZiB0aGUgdGVzdA==$\
IVKe96NgK8FGdw0NjojrpmkLA11tIT7Lw5PZlAfGhow=:BWppTiELy2kWRfBzGCgsK1LumkwaFDCgplPNWrQYTiI='
CREATE DATABASE test OWNER test
UPDATE pg_database SET datistemplate = false WHERE datname = 'template0'
DROP DATABASE template0
DROP DATABASE postgres
";

const PID_FILE: &str = "postmaster.pid";

/// A server that is killed leaves a piece of System V memory behind, of which a machine has 4,096.
/// The seventh line has its key and its id.
const FAREWELL: &str = r#"ipcrm -m "$(sed -n '7s/.* //p' "$dir/data/postmaster.pid")" 2>/dev/null"#;
