use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::servers::account::{Account, LOG};
use crate::servers::process::Process;

/// Writes what a pooler before the server of a port needs into its directory. The last setting of a
/// name counts.
pub(super) fn configure(
    dir: &Path,
    port: u16,
    (server, users): (u16, &[(String, String)]),
    settings: &[(&str, &str)],
    account: &Account,
) -> io::Result<()> {
    let mut config = format!(
        "[databases]\n* = host=127.0.0.1 port={server}\n\n[pgbouncer]\nlisten_port = {port}\n"
    );
    // A name that is there twice is an error.
    let is_last = |place: usize, name: &str| {
        let later = settings.get(place + 1..).unwrap_or_default();
        later.iter().all(|(other, _)| *other != name)
    };
    for (name, value) in DEFAULTS {
        if settings.iter().all(|(other, _)| *other != name) {
            config.push_str(&format!("{name} = {value}\n"));
        }
    }
    for (place, (name, value)) in settings.iter().enumerate() {
        if is_last(place, name) {
            config.push_str(&format!("{name} = {value}\n"));
        }
    }
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let known = [("postgres", "postgres"), ("test", "test")];
    let own = users.iter();
    let users: String = known
        .into_iter()
        .chain(own.map(|(name, password)| (name.as_str(), password.as_str())))
        .map(|(name, password)| format!("{} {}\n", quoted(name), quoted(password)))
        .collect();
    for (name, content) in [(CONFIG, config), (USERS, users)] {
        let file = dir.join(name);
        fs::write(&file, content)?;
        fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        account.give(&file)?;
    }
    Ok(())
}

/// Starts the pooler of a directory that has all it needs, and waits until it takes connections.
pub(super) fn launch(dir: &Path, account: &Account) -> io::Result<Process> {
    // What a pooler has logged before it was killed would look like one that is ready.
    fs::write(dir.join(LOG), "")?;
    let mut args = account.arguments(Path::new(PROGRAM), dir, None);
    args.push(CONFIG.into());
    let args: Vec<_> = args.iter().map(|arg| arg.as_os_str()).collect();
    let process = Process::start("sh", &args, dir, None)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let log = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
        if log.contains("process up") {
            return Ok(process);
        }
        let printed = process.ended();
        if printed.is_some() || Instant::now() > deadline {
            let kind = if log.contains("Address already in use") {
                io::ErrorKind::AddrInUse
            } else {
                io::ErrorKind::Other
            };
            let printed = printed.unwrap_or_default();
            return Err(io::Error::new(kind, format!("{printed}{log}")));
        }
        thread::sleep(PAUSE);
    }
}

const PROGRAM: &str = "/usr/sbin/pgbouncer";
const CONFIG: &str = "pgbouncer.ini";
const USERS: &str = "users.txt";

const DEFAULTS: [(&str, &str); 7] = [
    ("admin_users", "postgres"),
    ("auth_file", USERS),
    ("auth_type", "scram-sha-256"),
    ("listen_addr", "127.0.0.1"),
    ("max_client_conn", "500"),
    ("server_tls_sslmode", "prefer"),
    // The port would be taken twice, once where nobody looks.
    ("unix_socket_dir", ""),
];

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(2);
