//! MariaDB: a server of a test or of a test run. With `LOCK_TESTKIT_MYSQLD=PATH` it is the MySQL server of this
//! path instead.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::database::{DatabaseClient, Dialect};
use super::port::free_port;
use super::process::Account;
use super::server_process::{Service, Setup, Site, deref_to, setup_options, started};
use super::template::{DATA, Template, disk_dir};
use super::{DatabaseServer, ServerProcess, SharedDatabase, TestCertificates, mysql};
use crate::command::run;

/// One MariaDB server, killed when the value is dropped.
///
/// Its user `test` may do everything in the database `test` and in those of
/// [`database`](DatabaseServer::database). It has no database `sys`. Under root it runs as the user
/// `mysql` or `nobody`.
#[derive(Debug)]
pub struct MariaDbServer(DatabaseServer);

impl MariaDbServer {
    /// Starts one and waits until it takes connections: 0.3 s on an idle machine, and 1 s more for
    /// the first of its version, whose data are kept in the temporary directory for those that
    /// follow.
    #[must_use]
    pub fn start(options: MariaDbOptions) -> Self {
        started("MariaDB", move || {
            let (port, setup) = (free_port()?, options.setup.clone());
            let process = ServerProcess::start_at(port, setup, options.clone())?;
            Ok(Self(DatabaseServer::new(process, &DIALECT)))
        })
    }

    /// The list of the sessions. MySQL cannot read the one in `information_schema` while any client runs a
    /// statement whose text is not UTF-8.
    pub const PROCESS_LIST: &str =
        "/*M!100000 information_schema.processlist */ /*!80000 performance_schema.processlist */";

    /// Whether the tests of MariaDB use MySQL.
    #[must_use]
    pub fn is_mysql() -> bool {
        mysql::server().is_some()
    }

    /// The one server that all tests of a run use, started by the first that asks.
    pub fn shared() -> SharedDatabase {
        SharedDatabase::join(&DIALECT, || Self::start(MariaDbOptions::new()).0)
    }
}

deref_to!(MariaDbServer, 0: DatabaseServer);

static DIALECT: Dialect = Dialect {
    name: "mariadb",
    scheme: "mysql",
    superuser: "root",
    socket,
    command: client,
    rows,
    count: "SELECT count(*) FROM /*M!100000 information_schema.processlist */ \
            /*!80000 performance_schema.processlist */ WHERE user = 'test'",
    create: ("CREATE DATABASE ", ""),
};

fn socket(dir: &Path, _port: u16) -> PathBuf {
    dir.join(SOCKET)
}

fn client(client: &DatabaseClient, database: &str) -> io::Result<Command> {
    let mut command = Command::new("mariadb");
    command
        .args(["--no-defaults", "--batch", "--skip-column-names"])
        .args(["--connect-timeout=5", "--default-character-set=utf8mb4"])
        // The one of the server is for the code under test.
        .arg("--init-command=SET @testkit = 1 /*M!100000 , SESSION max_statement_time = 0 */")
        .args(["--user", "root", "--database", database, "--socket"])
        .arg(client.dir.join(SOCKET))
        .env("MYSQL_PWD", "root");
    Ok(command)
}

fn rows(printed: &str) -> Vec<Vec<String>> {
    let fields = |row: &str| row.split('\t').map(plain).collect();
    printed.split_terminator('\n').map(fields).collect()
}

/// A field without the escapes of the client's batch mode.
fn plain(field: &str) -> String {
    let mut text = String::new();
    let mut rest = field.chars();
    while let Some(letter) = rest.next() {
        let letter = match letter {
            '\\' => match rest.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('0') => '\0',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        };
        text.push(letter);
    }
    text
}

/// How a [`MariaDbServer`] is set up. By default what is committed survives a
/// [`kill`](crate::servers::ServerProcess::kill) but not a power failure, the character set is `utf8mb4`, and
/// everything else is as MariaDB has it, with less memory.
#[derive(Clone, Debug, Default)]
pub struct MariaDbOptions {
    setup: Setup,
    tls: Option<TestCertificates>,
}

setup_options!(MariaDbOptions);

impl MariaDbOptions {
    /// Sets `innodb_flush_log_at_trx_commit` to 1, or to 2 as it is by default.
    #[must_use]
    pub fn with_durability(self, on: bool) -> Self {
        let value = if on { "1" } else { "2" };
        self.with_config("innodb_flush_log_at_trx_commit", value)
    }

    /// Takes connections by TCP with TLS only.
    #[must_use]
    pub fn with_tls(mut self, files: &TestCertificates) -> Self {
        self.tls = Some(files.clone());
        self
    }
}

const DEFAULTS: [(&str, &str); 7] = [
    ("character_set_server", "utf8mb4"),
    ("innodb_buffer_pool_load_at_startup", "OFF"),
    ("innodb_buffer_pool_size", "32M"),
    ("innodb_flush_log_at_trx_commit", "2"),
    ("loose_innodb_log_file_size", "8M"),
    ("max_connections", "500"),
    ("skip_name_resolve", "ON"),
];

const TLS: [(&str, &str); 3] = [
    ("require_secure_transport", "ON"),
    ("ssl_cert", "server.pem"),
    ("ssl_key", "server.key"),
];

impl Service for MariaDbOptions {
    fn accounts(&self) -> &'static [&'static str] {
        &["mysql", "nobody"]
    }

    /// In `/dev/shm` it maps its log into memory, which then survives its end whatever its options say.
    fn parent(&self) -> PathBuf {
        disk_dir()
    }

    fn configure(&self, site: &Site<'_>) -> io::Result<()> {
        make_data(site.dir, site.account)?;
        match &self.tls {
            Some(tls) => tls.give_to(site, Path::new(DATA)),
            None => Ok(()),
        }
    }

    fn command(&self, site: &Site<'_>) -> io::Result<Vec<OsString>> {
        let (home, port) = (site.dir.display(), site.port);
        let mut words = vec![
            server()?.into(),
            "--no-defaults".into(),
            format!("--port={port}").into(),
            format!("--datadir={home}/{DATA}").into(),
            format!("--socket={home}/{SOCKET}").into(),
            format!("--pid_file={home}/pid").into(),
            format!("--tmpdir={home}").into(),
        ];
        // Names of files are relative to its data.
        let tls = self.tls.as_ref().map(|_| &TLS[..]);
        let config = self.setup.configuration(&DEFAULTS, tls, "bind_address");
        let arguments = config.into_iter();
        words.extend(arguments.map(|(name, value)| format!("--{name}={value}").into()));
        if MariaDbServer::is_mysql() {
            words.extend(mysql::ARGUMENTS.map(OsString::from));
        }
        Ok(words)
    }

    fn is_ready(&self, site: &Site<'_>) -> bool {
        site.log().contains("ready for connections")
    }
}

fn make_data(dir: &Path, account: &Account) -> io::Result<()> {
    let server = server()?;
    let template = Template {
        server: "mariadb",
        program: &server,
        recipe: &match mysql::server() {
            Some(_) => format!("{:?} {}", mysql::ARGUMENTS, mysql::STATEMENTS),
            None => format!("{INSTALL:?} {BOOTSTRAP:?} {STATEMENTS}"),
        },
        account,
    };
    template.copy(&dir.join(DATA), |draft| {
        if MariaDbServer::is_mysql() {
            return mysql::make_data(&server, account, draft);
        }
        let data = format!("--datadir={}", draft.join(DATA).display());
        // Its bootstrap takes tables and no statements about users.
        let mut install = account.command(&program("mariadb-install-db")?, draft);
        run(install.args(["--no-defaults", &data]).args(INSTALL), "")?;
        let mut bootstrap = account.command(&server, draft);
        bootstrap.args(["--no-defaults", "--bootstrap", &data]);
        run(bootstrap.args(BOOTSTRAP), STATEMENTS).map(drop)
    })
}

fn server() -> io::Result<PathBuf> {
    mysql::server().map_or_else(|| program("mariadbd"), Ok)
}

fn program(name: &str) -> io::Result<PathBuf> {
    // The path of a user seldom has the directory that Debian puts servers into.
    let places = ["/usr/sbin", "/usr/bin"].map(|place| Path::new(place).join(name));
    let found = places.into_iter().find(|place| place.exists());
    found.ok_or_else(|| io::Error::other(format!("{name} is not installed")))
}

const INSTALL: [&str; 5] = [
    "--auth-root-authentication-method=normal",
    "--innodb_flush_log_at_trx_commit=0",
    "--innodb_log_file_size=8M",
    "--rpm",
    "--skip-test-db",
];

const BOOTSTRAP: [&str; 1] = ["--innodb_log_file_size=8M"];

/// One a line. Half of the files are of the views in `sys`, and a file system is slow to make many
/// where many were deleted just before. Without names of hosts, TCP comes from 127.0.0.1 and the socket
/// from `localhost`.
const STATEMENTS: &str = r"
DELETE FROM mysql.global_priv WHERE User = 'root' AND Host <> 'localhost';
FLUSH PRIVILEGES;
ALTER USER root@localhost IDENTIFIED BY 'root';
CREATE USER root@127.0.0.1 IDENTIFIED BY 'root';
GRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;
DROP DATABASE sys;
CREATE DATABASE test;
CREATE USER test@'%' IDENTIFIED BY 'test';
GRANT ALL ON test.* TO test@'%';
GRANT ALL ON `test\_%`.* TO test@'%';
";

const SOCKET: &str = "socket";
