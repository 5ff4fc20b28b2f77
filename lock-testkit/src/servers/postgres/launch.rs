use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Pid;

use super::PostgresOptions;
use super::server::{SUPERUSER, literal};
use crate::servers::account::Account;
use crate::servers::database::feed;
use crate::servers::server_process::{Machine, Service, Site};
use crate::servers::template::{DATA, Template, remove_if_there, run};

/// The server that a standby follows.
#[derive(Clone, Debug)]
pub(super) struct Primary {
    /// Its directory has the socket.
    pub(super) dir: PathBuf,
    pub(super) port: u16,
}

impl Service for PostgresOptions {
    fn machine(&self) -> &Machine {
        &self.machine
    }

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
        for (name, value) in self.config() {
            lines.push(format!("{name} = {}", literal(&value)));
        }
        let mut files = vec![
            ("postgresql.conf", lines.join("\n") + "\n"),
            ("pg_hba.conf", self.access()),
        ];
        if let Some(tls) = &self.tls {
            let certificate = fs::read_to_string(tls.server_certificate())?;
            files.push(("server.pem", certificate));
            files.push(("server.key", fs::read_to_string(tls.server_key())?));
        }
        for (name, content) in files {
            let file = site.dir.join(DATA).join(name);
            fs::write(&file, content)?;
            // It refuses a key that others may read.
            fs::set_permissions(&file, Permissions::from_mode(0o600))?;
            site.account.give(&file)?;
        }
        Ok(())
    }

    fn command(&self, site: &Site<'_>) -> io::Result<Vec<OsString>> {
        // Every process that it names is gone, and the number may be that of another one.
        remove_if_there(&site.dir.join(DATA).join(PID_FILE))?;
        let data = site.dir.join(DATA);
        Ok(vec![program("postgres")?.into(), "-D".into(), data.into()])
    }

    /// As `pg_ctl` does: the first line of the file is the process, its last what that does.
    fn is_ready(&self, site: &Site<'_>, pid: Pid) -> bool {
        let text = fs::read_to_string(site.dir.join(DATA).join(PID_FILE)).unwrap_or_default();
        let mut lines = text.lines();
        let pid = pid.as_raw_nonzero().to_string();
        lines.next() == Some(&pid) && lines.last().is_some_and(|last| last.trim() == "ready")
    }

    fn farewell(&self) -> &'static str {
        FAREWELL
    }
}

impl Primary {
    fn copy(&self, site: &Site<'_>) -> io::Result<()> {
        // By the socket, which asks for no password.
        run(site
            .account
            .command(&program("pg_basebackup")?, site.dir)
            .args(["-D", DATA, "-R", "-X", "stream", "-c", "fast", "-w"])
            .args(["--no-sync", "-U", SUPERUSER, "-h"])
            .arg(&self.dir)
            .args(["-p", &self.port.to_string()]))
    }
}

/// A program of the newest PostgreSQL that is installed, past the wrappers of Debian.
pub(super) fn program(name: &str) -> io::Result<PathBuf> {
    let version = |dir: &PathBuf| dir.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = fs::read_dir(PLACE).into_iter().flatten();
    installed
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|dir| dir.join("bin/postgres").exists())
        .max_by_key(version)
        .map(|dir| dir.join("bin").join(name))
        .ok_or_else(|| io::Error::other(format!("no PostgreSQL is installed in {PLACE}")))
}

/// Makes the data of a new server in its directory.
fn make_data(dir: &Path, account: &Account) -> io::Result<()> {
    let initdb = program("initdb")?;
    let template = Template {
        server: "postgres",
        program: &initdb,
        recipe: &format!("{INITDB:?} {STATEMENTS}"),
        account,
    };
    template.copy(&dir.join(DATA), |draft| {
        run(account
            .command(&initdb, draft)
            .args(["-D", DATA])
            .args(INITDB))?;
        let mut single = account.command(&program("postgres")?, draft);
        single
            .args(["--single", "-F", "-D", DATA, "-c", "min_wal_size=2MB"])
            .arg("template1")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        feed(&mut single, STATEMENTS).map(drop)
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
