use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process;

use super::ZooKeeperServer;
use super::launch::{is_own, serves};
use super::words::{four_letter, value};

/// A server or an ensemble that the tests of a run have in common, though each runs in a process of
/// its own. Nobody may stop it; it ends within a second after the run.
///
/// A run is that of `cargo nextest`, and else the process.
#[derive(Clone, Debug)]
pub struct SharedZooKeeper {
    ports: Vec<u16>,
}

impl SharedZooKeeper {
    /// `127.0.0.1:PORT`, with a comma between several.
    #[must_use]
    pub fn address(&self) -> String {
        self.addresses().join(",")
    }

    /// `127.0.0.1:PORT` of each server.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let address = |port| format!("127.0.0.1:{port}");
        self.ports.iter().map(address).collect()
    }

    /// `zk://127.0.0.1:PORT`, with a comma between several.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zk://{}", self.address())
    }

    /// Asks the first server with one of the four-letter words.
    ///
    /// # Panics
    ///
    /// If it does not answer within 5 s.
    #[must_use]
    pub fn four_letter(&self, word: &str) -> String {
        four_letter(self.ports[0], word).expect("the server answers")
    }

    /// One value of `mntr`, such as `zk_watch_count`, of the first server.
    ///
    /// # Panics
    ///
    /// If it does not answer within 5 s.
    #[must_use]
    pub fn mntr(&self, name: &str) -> Option<i64> {
        value(&self.four_letter("mntr"), name)
    }

    /// Finds the one of this run, or starts it.
    pub(super) fn join(name: &str, start: impl Fn() -> Vec<ZooKeeperServer>) -> Self {
        let run = Run::current();
        let joined = run.join(name, start);
        joined.expect("the temporary directory takes files")
    }
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
            // The runner is gone, and whoever has adopted this process may live on for ever.
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
        start: impl Fn() -> Vec<ZooKeeperServer>,
    ) -> io::Result<SharedZooKeeper> {
        fs::create_dir_all(&self.dir)?;
        // Held until the end of this process, if need be, and no longer.
        let lock = File::create(self.dir.join(format!("{name}.lock")))?;
        let note = self.dir.join(name);
        if let Some(ports) = running(&note) {
            return Ok(SharedZooKeeper { ports });
        }
        lock.lock()?;
        if let Some(ports) = running(&note) {
            return Ok(SharedZooKeeper { ports });
        }
        let mut lines = String::new();
        let mut ports = Vec::new();
        for server in start() {
            let (port, dir) = server.keep(self.owner, &self.dir)?;
            lines.push_str(&format!("{port} {}\n", dir.display()));
            ports.push(port);
        }
        // A reader finds all of it or nothing.
        let draft = note.with_extension("draft");
        fs::write(&draft, lines)?;
        fs::rename(draft, note)?;
        Ok(SharedZooKeeper { ports })
    }
}

/// The ports in this file, if its servers are there and serve.
fn running(note: &Path) -> Option<Vec<u16>> {
    let lines = fs::read_to_string(note).ok()?;
    let port_of = |line: &str| {
        let (port, dir) = line.split_once(' ')?;
        let port = port.parse().ok()?;
        let is_there = is_own(Path::new(dir), port) && serves(port);
        is_there.then_some(port)
    };
    lines.lines().map(port_of).collect()
}
