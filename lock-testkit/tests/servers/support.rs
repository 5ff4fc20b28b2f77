use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// A process and what it has started.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("it runs");
    let children = children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a number"));
    children.chain([pid]).collect()
}

pub(crate) fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// Neither stopped nor at its end.
pub(crate) fn is_running(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'T' | 'Z'))
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

pub(crate) fn eventually(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "it does not happen");
        thread::sleep(Duration::from_millis(5));
    }
}

/// What the statements print, or why they fail; past the testkit.
pub(crate) fn psql(url: &str, statements: &[&str]) -> Result<String, String> {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1", url])
        // Whoever runs this may have certificates at home, or none that psql may look for.
        .env("HOME", std::env::temp_dir())
        .env("PGCONNECT_TIMEOUT", "5");
    for statement in statements {
        psql.args(["-c", statement]);
    }
    let output = psql.output().expect("psql is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}
