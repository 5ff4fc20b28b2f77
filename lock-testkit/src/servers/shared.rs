use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use tempfile::TempDir;

use super::process::Process;
use super::server_process::ServerProcess;

/// A server that the process which starts it hands over to the test run.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) process: Process,
    pub(super) dir: TempDir,
    pub(super) port: u16,
}

/// Where one of the servers that a test run has in common is.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct SharedServer {
    /// Its port.
    pub port: u16,
    /// Its directory.
    pub dir: PathBuf,
}

/// Finds or starts the servers of this name that all tests of a run share, also across processes.
/// They end within a second after the run.
///
/// A run is that of `cargo nextest`, and else the process.
pub(super) fn join(
    name: &str,
    start: impl Fn() -> Vec<Member>,
    serves: impl Fn(&SharedServer) -> bool,
) -> Vec<SharedServer> {
    let joined = Run::current().join(name, start, serves);
    joined.expect("the temporary directory takes files")
}

/// The same for servers of a kind that the testkit does not know.
pub fn share(
    name: &str,
    start: impl Fn() -> Vec<ServerProcess>,
    serves: impl Fn(&SharedServer) -> bool,
) -> Vec<SharedServer> {
    let members = || {
        start()
            .into_iter()
            .map(ServerProcess::into_member)
            .collect()
    };
    join(name, members, serves)
}

/// A name that no other call gives, in whichever process: letters, digits and underscores.
pub(super) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // Process ids come back.
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    format!("{prefix}_{}_{count}_{:x}", process::id(), now.as_micros())
}

/// What a process knows of the test run that it belongs to.
struct Run {
    /// Its end is that of the run.
    owner: u32,
    dir: PathBuf,
}

impl Run {
    fn current() -> Self {
        let named = env::var("NEXTEST_RUN_ID").ok();
        let owner = match (&named, parent_id()) {
            // The runner is gone, and the process that adopted this one may never end.
            (None, _) | (Some(_), 1) => process::id(),
            (Some(_), runner) => runner,
        };
        let id = named.unwrap_or_else(|| process::id().to_string());
        let dir = env::temp_dir().join(format!("polylock-run-{id}"));
        Self { owner, dir }
    }

    fn join(
        &self,
        name: &str,
        start: impl Fn() -> Vec<Member>,
        serves: impl Fn(&SharedServer) -> bool,
    ) -> io::Result<Vec<SharedServer>> {
        fs::create_dir_all(&self.dir)?;
        // Held until the end of this process, if need be, and no longer.
        let lock = File::create(self.dir.join(format!("{name}.lock")))?;
        let note = self.dir.join(name);
        if let Some(places) = running(&note, &serves) {
            return Ok(places);
        }
        lock.lock()?;
        if let Some(places) = running(&note, &serves) {
            return Ok(places);
        }
        let mut lines = String::new();
        let mut places = Vec::new();
        for Member { process, dir, port } in start() {
            process.keep(self.owner, &self.dir)?;
            let dir = dir.keep();
            lines.push_str(&format!("{port} {}\n", dir.display()));
            places.push(SharedServer { port, dir });
        }
        // The rename is atomic for readers.
        let draft = note.with_extension("draft");
        fs::write(&draft, lines)?;
        fs::rename(draft, note)?;
        Ok(places)
    }
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
