use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Pid;

use super::MariaDbOptions;
use crate::servers::account::Account;
use crate::servers::database::feed;
use crate::servers::server_process::{Machine, Service, Site};
use crate::servers::template::{DATA, Template, run};

impl Service for MariaDbOptions {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn accounts(&self) -> &'static [&'static str] {
        &["mysql", "nobody"]
    }

    fn configure(&self, site: &Site<'_>) -> io::Result<()> {
        make_data(site.dir, site.account)?;
        let Some(tls) = &self.tls else {
            return Ok(());
        };
        let pairs = [
            ("server.pem", tls.server_certificate()),
            ("server.key", tls.server_key()),
        ];
        for (name, source) in pairs {
            let file = site.dir.join(DATA).join(name);
            fs::copy(source, &file)?;
            fs::set_permissions(&file, Permissions::from_mode(0o600))?;
            site.account.give(&file)?;
        }
        Ok(())
    }

    fn command(&self, site: &Site<'_>) -> io::Result<Vec<OsString>> {
        let (home, port) = (site.dir.display(), site.port);
        let mut words = vec![
            program("mariadbd")?.into(),
            "--no-defaults".into(),
            format!("--port={port}").into(),
            format!("--datadir={home}/{DATA}").into(),
            format!("--socket={home}/{SOCKET}").into(),
            format!("--pid_file={home}/pid").into(),
            format!("--tmpdir={home}").into(),
        ];
        words.extend(self.arguments().into_iter().map(Into::into));
        Ok(words)
    }

    fn is_ready(&self, site: &Site<'_>, _pid: Pid) -> bool {
        site.log().contains("ready for connections")
    }
}

/// Makes the data of a new server in its directory.
fn make_data(dir: &Path, account: &Account) -> io::Result<()> {
    let server = program("mariadbd")?;
    let template = Template {
        server: "mariadb",
        program: &server,
        recipe: &format!("{INSTALL:?} {BOOTSTRAP:?} {STATEMENTS}"),
        account,
    };
    template.copy(&dir.join(DATA), |draft| {
        let data = format!("--datadir={}", draft.join(DATA).display());
        // Its bootstrap takes tables and no statements about users.
        run(account
            .command(&program("mariadb-install-db")?, draft)
            .args(["--no-defaults", &data])
            .args(INSTALL))?;
        let mut bootstrap = account.command(&server, draft);
        bootstrap
            .args(["--no-defaults", "--bootstrap", &data])
            .args(BOOTSTRAP)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        feed(&mut bootstrap, STATEMENTS).map(drop)
    })
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
/// where many were deleted just before. Without names of hosts, TCP comes from 127.0.0.1 and the socket from `localhost`.
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

pub(super) const SOCKET: &str = "socket";
