//! A place of its own for each test: a database in a new directory, and processes that end with it.

// Each test file is a crate of its own and uses some of this.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]
#![expect(dead_code, reason = "every test file uses a part of the helpers")]

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Time within which everything that is waited for has happened.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Waits until `is_so` is.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory with a database of its own.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A file in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The database that `lockctl` uses by default here.
    pub(crate) fn database(&self) -> PathBuf {
        self.file("polylock/locks.db")
    }

    /// What stands in a file; empty if there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// `lockctl` with these arguments in this place, and nothing else in its environment.
    pub(crate) fn lockctl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockctl"));
        command.args(args);
        self.settle(&mut command);
        command
    }

    /// Puts a command into this place.
    pub(crate) fn settle(&self, command: &mut Command) {
        command
            .current_dir(self.0.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("USER", "deploy")
            .env("XDG_STATE_HOME", self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    }

    /// Runs `lockctl` to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        Process::start(self.lockctl(args)).output()
    }

    /// Runs `lockctl` to its end, and gives its code and standard error.
    pub(crate) fn code(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        (
            code(output.status),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    /// Starts `lockctl`.
    pub(crate) fn start(&self, args: &[&str]) -> Process {
        Process::start(self.lockctl(args))
    }

    /// Starts `lockctl run` with a shell script, and waits until that has begun. `options` go
    /// before the command, and the script finds its process id in the file `pid`.
    pub(crate) fn hold(&self, options: &[&str], script: &str) -> Process {
        let script = format!("echo $$ > pid.new; mv pid.new pid; {script}");
        let line = [&["run"], options, &["--", "sh", "-c", &script]].concat();
        let _old = fs::remove_file(self.file("pid"));
        let process = self.start(&line);
        until("the command has begun", || self.file("pid").exists());
        process
    }

    /// The process id that the command of [`hold`](Self::hold) wrote down.
    pub(crate) fn pid(&self) -> Pid {
        pid_of(&self.read("pid"))
    }

    /// What a query command answers.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[&["--format", "json"], args].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
            panic!(
                "{e} in {:?}, {:?}",
                output.stdout,
                String::from_utf8_lossy(&output.stderr)
            )
        })
    }

    /// Whether somebody holds the lock.
    pub(crate) fn is_held(&self, key: &str) -> bool {
        self.json(&["inspect", key])["held"].as_bool().unwrap()
    }

    /// The JSON lines of `--events events`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.read("events");
        // The last line may be on its way.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits for an event of this name.
    pub(crate) fn event(&self, name: &str) -> Value {
        let mut found = None;
        until(&format!("the event {name}"), || {
            found = self
                .events()
                .into_iter()
                .find(|event| event["event"] == name);
            found.is_some()
        });
        found.unwrap()
    }
}

/// The code that a shell sees.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap())
}

pub(crate) fn pid_of(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// The state letter of a process, such as `S`, `T` or `Z`; `None` if there is none.
pub(crate) fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether the process can still do anything.
pub(crate) fn is_alive(pid: Pid) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// A process that is killed when it is dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits for the end, and gives the code that a shell sees.
    pub(crate) fn code(&mut self) -> i32 {
        let mut status = None;
        until("the process ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        code(status.unwrap())
    }

    /// Waits for the end.
    pub(crate) fn output(mut self) -> Output {
        // A script of completions does not fit into a pipe.
        let (stdout, stderr) = (self.0.stdout.take(), self.0.stderr.take());
        let (stdout, stderr) = (read_aside(stdout), read_aside(stderr));
        self.code();
        let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
        Output {
            status: self.0.wait().unwrap(),
            stdout,
            stderr,
        }
    }

    /// What it said on standard error until its end.
    pub(crate) fn said(self) -> String {
        String::from_utf8(self.output().stderr).unwrap()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }
}

/// Reads a pipe to its end while somebody writes to it.
fn read_aside(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut read = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut read).unwrap();
        }
        read
    })
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
