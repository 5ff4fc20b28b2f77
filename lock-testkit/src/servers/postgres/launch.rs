use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::PostgresOptions;
use super::psql::literal;
use crate::clock::ShiftedClock;
use crate::servers::account::{Account, LOG};
use crate::servers::process::Process;
use crate::servers::template::{DATA, Template, run};

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
pub(super) fn make_data(dir: &Path, account: &Account) -> io::Result<()> {
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
        let mut single = account
            .command(&program("postgres")?, draft)
            .args(["--single", "-F", "-D", DATA, "-c", "min_wal_size=2MB"])
            .arg("template1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut input = single.stdin.take();
        if let Some(input) = &mut input {
            input.write_all(STATEMENTS.as_bytes())?;
        }
        drop(input);
        let status = single.wait()?;
        let error = || io::Error::other(format!("no database is made: {status}"));
        status.success().then_some(()).ok_or_else(error)
    })
}

/// Writes how the server of this directory is set up.
pub(super) fn configure(
    dir: &Path,
    port: u16,
    options: &PostgresOptions,
    account: &Account,
) -> io::Result<()> {
    let mut lines = vec![
        format!("port = {port}"),
        format!(
            "unix_socket_directories = {}",
            literal(&dir.to_string_lossy())
        ),
    ];
    let config = options.config();
    lines.extend(
        config
            .iter()
            .map(|(name, value)| format!("{name} = {}", literal(value))),
    );
    let mut files = vec![
        ("postgresql.conf", lines.join("\n") + "\n"),
        ("pg_hba.conf", options.access()),
    ];
    if let Some(tls) = options.tls() {
        let certificate = fs::read_to_string(tls.server_certificate())?;
        files.push(("server.pem", certificate));
        files.push(("server.key", fs::read_to_string(tls.server_key())?));
    }
    for (name, content) in files {
        let file = dir.join(DATA).join(name);
        fs::write(&file, content)?;
        // It refuses a key that others may read.
        fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        account.give(&file)?;
    }
    Ok(())
}

/// Starts the server of a directory that has all it needs, and waits until it takes connections.
pub(super) fn launch(
    dir: &Path,
    options: &PostgresOptions,
    account: &Account,
) -> io::Result<Process> {
    // An old line about a port that was taken would hide why it does not start this time.
    fs::write(dir.join(LOG), "")?;
    let pid_file = dir.join(DATA).join(PID_FILE);
    // Everybody that it tells of is gone, and the number may be somebody else's.
    if let Err(error) = fs::remove_file(&pid_file)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let data = dir.join(DATA);
    let clock = options.has_clock().then(|| ShiftedClock::in_dir(dir));
    let clock = clock.transpose()?;
    let mut args = account.arguments(&program("postgres")?, dir, clock.as_ref());
    args.extend(["-D".into(), data.into()]);
    let args: Vec<_> = args.iter().map(|arg| arg.as_os_str()).collect();
    let args: &[&OsStr] = &args;
    let process = Process::start_with_farewell("sh", args, dir, options.host(), FAREWELL)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        if is_ready(&pid_file, process.pid()) {
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

/// What `pg_ctl` looks at, too: its first line is the process, its last what that does.
fn is_ready(pid_file: &Path, pid: Pid) -> bool {
    let text = fs::read_to_string(pid_file).unwrap_or_default();
    let mut lines = text.lines();
    let pid = pid.as_raw_nonzero().to_string();
    lines.next() == Some(&pid) && lines.last().is_some_and(|last| last.trim() == "ready")
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
/// once and not 4,096 times, which takes a client that is not optimised 80 ms at each login.
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

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);
