use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::MariaDbOptions;
use crate::clock::ShiftedClock;
use crate::servers::account::{Account, LOG};
use crate::servers::process::Process;
use crate::servers::template::{DATA, Template, run};

/// Makes the data of a new server in its directory.
pub(super) fn make_data(dir: &Path, account: &Account) -> io::Result<()> {
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
        let mut bootstrap = account
            .command(&server, draft)
            .args(["--no-defaults", "--bootstrap", &data])
            .args(BOOTSTRAP)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut input = bootstrap.stdin.take();
        if let Some(input) = &mut input {
            input.write_all(STATEMENTS.as_bytes())?;
        }
        drop(input);
        let status = bootstrap.wait()?;
        let error = || io::Error::other(format!("no users are made: {status}"));
        status.success().then_some(()).ok_or_else(error)
    })
}

/// Writes what a server needs beside its data.
pub(super) fn configure(dir: &Path, options: &MariaDbOptions, account: &Account) -> io::Result<()> {
    let Some(tls) = options.tls() else {
        return Ok(());
    };
    let pairs = [
        ("server.pem", tls.server_certificate()),
        ("server.key", tls.server_key()),
    ];
    for (name, source) in pairs {
        let file = dir.join(DATA).join(name);
        fs::copy(source, &file)?;
        fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        account.give(&file)?;
    }
    Ok(())
}

/// Starts the server of a directory that has all it needs, and waits until it takes connections.
pub(super) fn launch(
    dir: &Path,
    port: u16,
    options: &MariaDbOptions,
    account: &Account,
) -> io::Result<Process> {
    // What a server has logged before it was killed would look like one that is ready.
    fs::write(dir.join(LOG), "")?;
    let home = dir.display();
    let clock = options.has_clock().then(|| ShiftedClock::in_dir(dir));
    let clock = clock.transpose()?;
    let mut args = account.arguments(&program("mariadbd")?, dir, clock.as_ref());
    args.extend(["--no-defaults".into(), format!("--port={port}").into()]);
    args.extend([
        format!("--datadir={home}/{DATA}").into(),
        format!("--socket={home}/{SOCKET}").into(),
        format!("--pid_file={home}/pid").into(),
        format!("--tmpdir={home}").into(),
    ]);
    args.extend(options.arguments().into_iter().map(Into::into));
    let args: Vec<_> = args.iter().map(|arg| arg.as_os_str()).collect();
    let process = Process::start("sh", &args, dir, options.host())?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let log = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
        if log.contains("ready for connections") {
            return Ok(process);
        }
        if let Some(printed) = process.ended() {
            return Err(reason(dir, printed));
        }
        if Instant::now() > deadline {
            return Err(reason(dir, "it takes no connections\n"));
        }
        thread::sleep(PAUSE);
    }
}

fn reason(dir: &Path, printed: &str) -> io::Error {
    let log = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
    let kind = if log.contains("Address already in use") {
        io::ErrorKind::AddrInUse
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, format!("{printed}{log}"))
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

pub(super) const ROOT: &str = "root";
pub(super) const SOCKET: &str = "socket";

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);
