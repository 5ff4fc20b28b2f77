use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use polylock_core::LockKey;

use super::process::TakerProcess;

/// Where the lock-taker of a backend is, and the URL that leads it to the store of a test.
#[derive(Clone, Debug)]
pub struct Taker {
    prefix: Vec<OsString>,
    program: PathBuf,
    url: String,
}

impl Taker {
    /// The program at a path. The URL has to name the same keys as the clients of the harness do:
    /// those of a bare backend need `namespace=` in it.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, url: impl Into<String>) -> Self {
        Self {
            prefix: Vec::new(),
            program: program.into(),
            url: url.into(),
        }
    }

    /// The example of this name in the package under test, which cargo builds with the tests.
    ///
    /// # Panics
    ///
    /// If the example does not exist.
    #[must_use]
    pub fn example(name: &str, url: impl Into<String>) -> Self {
        let test = std::env::current_exe().expect("a test has a path");
        // target/debug/deps/test-0123 beside target/debug/examples/name
        let target = test
            .parent()
            .and_then(Path::parent)
            .expect("a test lies in target/*/deps");
        let program = target.join("examples").join(name);
        assert!(
            program.exists(),
            "{} is not built, `cargo build --examples`",
            program.display()
        );
        Self::new(program, url)
    }

    /// Runs it by another program, such as one that enters a network namespace: these words come
    /// before the program.
    #[must_use]
    pub fn with_prefix(mut self, words: impl IntoIterator<Item = OsString>) -> Self {
        self.prefix = words.into_iter().collect();
        self
    }

    /// Prepares a process that acquires a lock.
    #[must_use]
    pub fn take(&self, key: &LockKey) -> Take {
        let program = self.program.as_os_str();
        let mut words = self.prefix.iter().map(OsString::as_os_str).chain([program]);
        let mut command = Command::new(words.next().unwrap_or(program));
        command
            .args(words)
            .arg("--url")
            .arg(&self.url)
            .arg("--key")
            .arg(key.as_str());
        Take { command }
    }
}

/// A lock-taker about to be started. By default it waits for 30 s, holds until it is killed, and
/// renews its lease.
#[derive(Debug)]
pub struct Take {
    command: Command,
}

impl Take {
    fn with(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(name).arg(value);
        self
    }

    /// Sets the ttl of the lease.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        self.with("--ttl", format!("{}ns", ttl.as_nanos()))
    }

    /// Sets how long each hold lasts.
    #[must_use]
    pub fn with_hold(self, hold: Duration) -> Self {
        self.with("--hold", format!("{}ns", hold.as_nanos()))
    }

    /// Sets how long to wait.
    #[must_use]
    pub fn with_wait(self, wait: Duration) -> Self {
        self.with("--wait", format!("{}ns", wait.as_nanos()))
    }

    /// Sets how often the lock is taken.
    #[must_use]
    pub fn with_rounds(self, rounds: u32) -> Self {
        self.with("--rounds", rounds.to_string())
    }

    /// Adds one to the counter in a file during each hold: reads it, sleeps, writes it.
    #[must_use]
    pub fn with_increment(self, file: &Path) -> Self {
        self.with("--increment", file)
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// Those of starting a process.
    pub fn spawn(self) -> io::Result<TakerProcess> {
        TakerProcess::spawn(self.command)
    }
}
