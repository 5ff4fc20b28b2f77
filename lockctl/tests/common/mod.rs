//! A place of its own for each test: a database in a new directory, and processes that end with it.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Time within which everything that is waited for has happened.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Arguments: words, or a text of words between spaces, where single quotes make one word.
pub(crate) trait Line {
    fn words(&self) -> Vec<String>;
}

impl Line for str {
    fn words(&self) -> Vec<String> {
        let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
        for c in self.chars() {
            match c {
                '\'' => {
                    is_quoted = !is_quoted;
                    word.get_or_insert_default();
                }
                ' ' if !is_quoted => words.extend(word.take()),
                _ => word.get_or_insert_default().push(c),
            }
        }
        assert!(!is_quoted, "a quote is left open in {self}");
        words.extend(word);
        words
    }
}

impl Line for String {
    fn words(&self) -> Vec<String> {
        self.as_str().words()
    }
}

impl Line for [&str] {
    fn words(&self) -> Vec<String> {
        self.iter().map(ToString::to_string).collect()
    }
}

impl<const N: usize> Line for [&str; N] {
    fn words(&self) -> Vec<String> {
        self[..].words()
    }
}

impl Line for Vec<&str> {
    fn words(&self) -> Vec<String> {
        self[..].words()
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

    /// The content of a file; empty if there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// `lockctl` with these arguments in this place, and nothing else in its environment.
    pub(crate) fn lockctl(&self, line: &(impl Line + ?Sized)) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockctl"));
        command.args(line.words());
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

    /// Returns what a command prints as JSON.
    #[track_caller]
    pub(crate) fn json(&self, line: &(impl Line + ?Sized)) -> Value {
        let mut command = self.lockctl("--format json");
        command.args(line.words());
        Process::start(command).ended().json()
    }
}

/// How a process ended, with all that it said, which each failed assertion on it shows.
#[derive(Debug)]
pub(crate) struct Ended {
    line: String,
    /// The code that a shell sees.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("no JSON ({e}): {self}"))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, code) = (&self.line, self.code);
        write!(f, "`{line}` ended with {code}")?;
        write_said(f, &self.stdout, &self.stderr)
    }
}

fn write_said(out: &mut impl fmt::Write, stdout: &str, stderr: &str) -> fmt::Result {
    write!(out, "\n-- stdout:\n{stdout}\n-- stderr:\n{stderr}")
}

/// A process that is killed when it is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    line: String,
    pub(crate) stdout: Pipe,
    stderr: Pipe,
    /// How long anything about it is waited for.
    pub(crate) time: Duration,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        let words = [command.get_program()]
            .into_iter()
            .chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let line = words.join(" ");
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{line}: {e}"));
        Self {
            line,
            stdout: Pipe::read(child.stdout.take()),
            stderr: Pipe::read(child.stderr.take()),
            time: SOON,
            child,
        }
    }

    /// Waits until `is_so`; a failure shows what the process has said.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + self.time;
        while !is_so(self) {
            if Instant::now() > deadline {
                let mut said = String::new();
                write_said(&mut said, &self.stdout.text(), &self.stderr.text()).unwrap();
                panic!(
                    "not within {:?}: {what}; `{}` said{said}",
                    self.time, self.line
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end, and returns the code that a shell sees.
    #[track_caller]
    pub(crate) fn code(&mut self) -> i32 {
        let mut status = None;
        self.until("the process ends", |process| {
            status = process.child.try_wait().unwrap();
            status.is_some()
        });
        code(status.unwrap())
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn output(mut self) -> Output {
        self.code();
        let is_read = |process: &mut Self| process.stdout.is_read() && process.stderr.is_read();
        self.until("nobody has its pipes open after its end", is_read);
        Output {
            status: self.child.wait().unwrap(),
            stdout: self.stdout.bytes(),
            stderr: self.stderr.bytes(),
        }
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn ended(self) -> Ended {
        let line = self.line.clone();
        let output = self.output();
        let text = |bytes| String::from_utf8(bytes).unwrap_or_else(|e| panic!("{line}: {e}"));
        Ended {
            code: code(output.status),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            line,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The code that a shell sees.
fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// What a process writes, read while it runs.
pub(crate) struct Pipe {
    read: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Pipe {
    fn read(pipe: Option<impl Read + Send + 'static>) -> Self {
        let read = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&read);
        let reader = std::thread::spawn(move || {
            let Some(mut pipe) = pipe else { return };
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                to.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { read, reader }
    }

    fn is_read(&self) -> bool {
        self.reader.is_finished()
    }

    fn bytes(&self) -> Vec<u8> {
        self.read.lock().unwrap().clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}
