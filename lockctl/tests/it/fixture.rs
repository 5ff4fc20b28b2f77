//! A place of its own for each test: a database in a new directory, processes that end with it, and
//! what is expected of them.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::fmt;
use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lock_testkit::servers::data_dir;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const LOCKCTL: &str = env!("CARGO_BIN_EXE_lockctl");

/// A part of a script that waits for [`Place::go`].
pub(crate) const UNTIL_GO: &str = "until test -e go; do sleep 0.05; done";

/// Waits until `is_so`.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

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

/// A directory with a database of its own.
pub(crate) struct Place(TempDir);

impl Place {
    /// Among the data of servers: a disk that other tests keep busy stalls for longer than a renewal of a
    /// file may take.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir_in(data_dir()).unwrap())
    }

    pub(crate) fn on_disk() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
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
        let mut command = Command::new(LOCKCTL);
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

    /// The database that `lockctl` uses by default here.
    pub(crate) fn database(&self) -> PathBuf {
        self.file("polylock/locks.db")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).expect("a file in a directory of the test");
    }

    /// Writes a file `lock.toml` of a move to SQLite from the locks of this URL.
    pub(crate) fn write_migration(&self, old: &str) {
        let file = format!(
            "default = 'new'\n[backend.old]\nurl = '{old}'\n\
             [backend.new]\nurl = 'sqlite:new.db'\nmigrate-from = 'old'"
        );
        self.write("lock.toml", &file);
    }

    /// Starts `lockctl`.
    pub(crate) fn start(&self, line: &(impl Line + ?Sized)) -> Process {
        Process::start(self.lockctl(line))
    }

    /// Runs `lockctl` to its end, which must have this code.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, line: &(impl Line + ?Sized)) -> Ended {
        self.expect_with(code, line, &[])
    }

    /// The same with variables in its environment.
    #[track_caller]
    pub(crate) fn expect_with(
        &self,
        code: i32,
        line: &(impl Line + ?Sized),
        variables: &[(&str, &str)],
    ) -> Ended {
        let mut command = self.lockctl(line);
        command.envs(variables.iter().copied());
        let ended = Process::start(command).ended();
        assert_eq!(ended.code, code, "{variables:?} {ended}");
        ended
    }

    /// Starts a program of this place with a pipe to its standard input.
    pub(crate) fn program(&self, name: &str, args: &[&str]) -> Process {
        let mut command = Command::new(name);
        command.args(args);
        self.settle(&mut command);
        command.stdin(Stdio::piped());
        Process::start(command)
    }

    /// Starts a line of a shell on a terminal.
    pub(crate) fn terminal(&self, line: &str) -> Process {
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", line, "/dev/null"]);
        self.settle(&mut command);
        command.env("TERM", "xterm").env("COLUMNS", "200");
        command.stdin(Stdio::piped());
        Process::start(command)
    }

    /// Starts `lockctl run` with a shell script, and waits until that has begun. The script finds
    /// its process id in the file `pid`.
    #[track_caller]
    pub(crate) fn hold(&self, options: &str, script: &str) -> Process {
        let script = format!("echo $$ > pid.new; mv pid.new pid; {script}");
        let mut command = self.lockctl("run");
        command.args(options.words());
        command.args(["--", "sh", "-c", &script]);
        let _old = fs::remove_file(self.file("pid"));
        let mut process = Process::start(command);
        process.until("the command begins", |process| {
            assert!(
                process.is_running() || self.file("pid").exists(),
                "it ended early"
            );
            self.file("pid").exists()
        });
        process
    }

    /// Holds a lock until the process is dropped or told to end.
    #[track_caller]
    pub(crate) fn holder(&self, options: &str) -> Process {
        self.hold(options, "exec sleep 60")
    }

    /// The process id of the command of [`hold`](Self::hold).
    pub(crate) fn pid(&self) -> Pid {
        pid_of(&self.read("pid"))
    }

    /// Lets scripts with [`UNTIL_GO`] go on.
    pub(crate) fn go(&self) {
        self.write("go", "");
    }

    /// Waits for a file that a script makes.
    #[track_caller]
    pub(crate) fn until_there(&self, name: &str) {
        until(&format!("the script makes the file {name}"), || {
            self.file(name).exists()
        });
    }

    pub(crate) fn remove(&self, names: &[&str]) {
        for name in names {
            fs::remove_file(self.file(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }

    /// Removes a database, which must be the only one of this place.
    #[track_caller]
    pub(crate) fn remove_only(&self, database: &str) {
        self.remove(&[database]);
        let files = fs::read_dir(self.file("")).expect("the directory of the test");
        let names = files.map(|file| file.expect("a file of the test").file_name());
        let others = names.filter(|name| Path::new(name).extension() == Some("db".as_ref()));
        let others: Vec<_> = others.collect();
        let is_default = self.database().exists();
        assert!(
            others.is_empty() && !is_default,
            "not only {database} is made, but {others:?}, or that of this user: {is_default}"
        );
    }

    /// No command has made the file `ran`, which it makes under its lock alone.
    #[track_caller]
    pub(crate) fn assert_not_run(&self) {
        assert!(!self.file("ran").exists(), "a command ran without its lock");
    }

    /// Whether the lock has a holder.
    #[track_caller]
    pub(crate) fn is_held(&self, key: &str) -> bool {
        let answer = self.json(&["inspect", key]);
        let held = answer["held"].as_bool();
        held.unwrap_or_else(|| panic!("`held` is no boolean: {answer}"))
    }

    /// Waits until the lock has no holder.
    #[track_caller]
    pub(crate) fn until_free(&self, key: &str) {
        until(&format!("{key} is free"), || !self.is_held(key));
    }

    /// The JSON lines of `--events events`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.read("events");
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let event = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        whole.lines().map(event).collect()
    }

    /// Waits for an event of this name.
    #[track_caller]
    pub(crate) fn event(&self, name: &str) -> Value {
        self.event_with(name, |_| true)
    }

    /// The first event `waiting` with a holder; on a busy machine there may be one without before it.
    pub(crate) fn waiting_event(&self) -> Value {
        self.event_with("waiting", |event| !event["holders"].is_null())
    }

    /// Waits for an event of this name that matches.
    #[track_caller]
    pub(crate) fn event_with(&self, name: &str, matches: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + SOON;
        loop {
            let events = self.events();
            let mut named = events.iter().filter(|event| event["event"] == name);
            if let Some(event) = named.find(|event| matches(event)) {
                return event.clone();
            }
            assert!(
                Instant::now() < deadline,
                "no event {name} within {SOON:?}: {events:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The exit status and the output of a process, which each failed assertion on it shows.
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

    /// All of these are a part of standard error.
    #[track_caller]
    pub(crate) fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "nothing of {part:?}: {self}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn says_nothing_of(self, parts: &[&str]) -> Self {
        for part in parts {
            let all = [&self.stdout, &self.stderr];
            assert!(
                !all.iter().any(|said| said.contains(part)),
                "says {part:?}: {self}"
            );
        }
        self
    }

    /// This is all of standard error.
    #[track_caller]
    pub(crate) fn says_only(self, text: &str) -> Self {
        assert_eq!(self.stderr, text, "{self}");
        self
    }

    /// All of these are a part of standard output.
    #[track_caller]
    pub(crate) fn prints(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stdout.contains(part), "no {part:?} is printed: {self}");
        }
        self
    }

    /// This is all of standard output.
    #[track_caller]
    pub(crate) fn prints_only(self, text: &str) -> Self {
        assert_eq!(self.stdout, text, "{self}");
        self
    }

    /// The number that is all of standard output.
    #[track_caller]
    pub(crate) fn number(&self) -> u64 {
        let number = self.stdout.trim().parse();
        number.unwrap_or_else(|e| panic!("no number ({e}): {self}"))
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
    pub(crate) stderr: Pipe,
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
        let status = status.unwrap();
        let signal = || 128 + status.signal().unwrap();
        status.code().unwrap_or_else(signal)
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn ended(mut self) -> Ended {
        let code = self.code();
        let is_read = |process: &mut Self| process.stdout.is_read() && process.stderr.is_read();
        self.until("nobody has its pipes open after its end", is_read);
        let line = self.line.clone();
        let text =
            |pipe: &Pipe| String::from_utf8(pipe.bytes()).unwrap_or_else(|e| panic!("{line}: {e}"));
        Ended {
            code,
            stdout: text(&self.stdout),
            stderr: text(&self.stderr),
            line,
        }
    }

    pub(crate) fn pid(&mut self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process is there");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        let status = self.child.try_wait();
        status.expect("it is a child of this process").is_none()
    }

    /// Waits until this is a part of standard error.
    #[track_caller]
    pub(crate) fn until_says(&mut self, part: &str) {
        let what = format!("it says {part:?}");
        self.until(&what, |process| process.stderr.text().contains(part));
    }

    /// Waits until this is a part of standard output.
    #[track_caller]
    pub(crate) fn until_prints(&mut self, part: &str) {
        let what = format!("it prints {part:?}");
        self.until(&what, |process| process.stdout.text().contains(part));
    }

    /// Waits until it has asked so many times whether to break a lock.
    #[track_caller]
    pub(crate) fn until_asked(&mut self, times: usize) {
        self.until("it asks", |process| {
            process.stdout.text().matches("break it? [y/N]").count() == times
        });
    }

    /// Writes to its standard input.
    pub(crate) fn enter(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("there is a pipe");
        stdin.write_all(text.as_bytes()).expect("it reads");
    }

    /// Sends TERM and waits for the end, which must have this code.
    #[track_caller]
    pub(crate) fn terminate(mut self, code: i32) -> Ended {
        self.signal(Signal::TERM);
        self.expect(code)
    }

    /// Waits for its end, which must have this code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Ended {
        let ended = self.ended();
        assert_eq!(ended.code, code, "{ended}");
        ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
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

#[track_caller]
pub(crate) fn pid_of(text: &str) -> Pid {
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    pid.unwrap_or_else(|| panic!("{text:?} is no process id"))
}

/// A pipe that takes no more bytes until somebody reads.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut full) = std::io::pipe().expect("a pipe");
    let set = |pipe: &_, flags| rustix::fs::fcntl_setfl(pipe, flags).expect("it is open");
    set(&full, rustix::fs::OFlags::NONBLOCK);
    while full.write(&[b'x'; 4096]).is_ok() {}
    while full.write(b"x").is_ok() {}
    set(&full, rustix::fs::OFlags::empty());
    (reader, full)
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

/// The children of a process.
pub(crate) fn children(of: Pid) -> Vec<Pid> {
    let of = of.as_raw_nonzero();
    let path = format!("/proc/{of}/task/{of}/children");
    let list = fs::read_to_string(path).expect("the process is there");
    list.split_whitespace().map(pid_of).collect()
}

#[track_caller]
pub(crate) fn assert_dead(pid: Pid) {
    assert!(!is_alive(pid), "the command lives on as process {pid:?}");
}

/// Checks all of these at the same time; a failure names the one that fails by itself.
#[cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]
pub(crate) fn side_by_side<T: Sync>(all: &[T], check: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for one in all {
            scope.spawn(|| check(one));
        }
    });
}
