use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use super::server_process::ServerProcess;

/// Where one of the servers that a test run has in common is.
#[derive(Clone, Debug)]
pub(super) struct SharedServer {
    pub(super) port: u16,
    pub(super) dir: PathBuf,
}

/// Finds or starts the servers of this name that all tests of a run share, also across processes.
/// They end within a second after the run.
///
/// A run is that of `cargo nextest`, and else the process.
pub(super) fn join(
    name: &str,
    start: impl Fn() -> Vec<ServerProcess>,
    serves: impl Fn(&SharedServer) -> bool,
) -> Vec<SharedServer> {
    let joined = try_join(name, start, serves);
    joined.expect("the temporary directory takes files")
}

fn try_join(
    name: &str,
    start: impl Fn() -> Vec<ServerProcess>,
    serves: impl Fn(&SharedServer) -> bool,
) -> io::Result<Vec<SharedServer>> {
    let (owner, dir) = current_run();
    fs::create_dir_all(&dir)?;
    // Held until the end of this process, if need be, and no longer.
    let lock = File::create(dir.join(format!("{name}.lock")))?;
    let note = dir.join(name);
    if let Some(places) = running(&note, &serves) {
        return Ok(places);
    }
    lock.lock()?;
    if let Some(places) = running(&note, &serves) {
        return Ok(places);
    }
    let mut lines = String::new();
    let mut places = Vec::new();
    for server in start() {
        let place = server.keep(owner, &dir)?;
        lines.push_str(&format!("{} {}\n", place.port, place.dir.display()));
        places.push(place);
    }
    // The rename is atomic for readers.
    let draft = note.with_extension("draft");
    fs::write(&draft, lines)?;
    fs::rename(draft, note)?;
    Ok(places)
}

/// The process whose end is that of the test run, and the directory of the run.
fn current_run() -> (u32, PathBuf) {
    let named = env::var("NEXTEST_RUN_ID").ok();
    let owner = match (&named, parent_id()) {
        // The runner is gone, and the process that adopted this one may never end.
        (None, _) | (Some(_), 1) => process::id(),
        (Some(_), runner) => runner,
    };
    let id = named.unwrap_or_else(|| process::id().to_string());
    (owner, env::temp_dir().join(format!("polylock-run-{id}")))
}

/// The places in this file, if its servers are there and serve.
fn running(note: &Path, serves: impl Fn(&SharedServer) -> bool) -> Option<Vec<SharedServer>> {
    let lines = fs::read_to_string(note).ok()?;
    let place_of = |line: &str| {
        let (port, dir) = line.split_once(' ')?;
        let (port, dir) = (port.parse().ok()?, PathBuf::from(dir));
        let place = SharedServer { port, dir };
        serves(&place).then_some(place)
    };
    lines.lines().map(place_of).collect()
}

/// A name that no other call gives, in whichever process: letters, digits and underscores.
#[must_use]
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // Process ids come back.
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("{prefix}_{}_{count}_{:x}", process::id(), now.as_micros())
}
