use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

/// A server that ends with this value, and with this process.
#[derive(Debug)]
pub(super) struct Process {
    shell: Child,
    /// The shell waits for a line or for the end of this.
    leash: Option<ChildStdin>,
    pid: Pid,
    /// What it printed, as soon as it has ended.
    ended: Arc<OnceLock<String>>,
}

impl Process {
    /// Starts the program; `dir` goes away when this process dies before the value is dropped.
    pub(super) fn start(program: &str, args: &[&OsStr], dir: &Path) -> io::Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(dir)
            .arg(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let leash = shell.stdin.take();
        let output = shell.stdout.take();
        let mut output = BufReader::new(output.ok_or_else(|| io::Error::other("no output"))?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the shell told no process id"))?;
        let ended = Arc::<OnceLock<String>>::default();
        let told = Arc::clone(&ended);
        thread::spawn(move || {
            let mut printed = Vec::new();
            let outcome = output.read_to_end(&mut printed);
            let mut printed = String::from_utf8_lossy(&printed).into_owned();
            if let Err(error) = outcome {
                printed.push_str(&error.to_string());
            }
            told.get_or_init(|| printed);
        });
        Ok(Self {
            shell,
            leash,
            pid,
            ended,
        })
    }

    /// The id of the server, not of the shell.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// What it printed, if it has ended.
    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }

    /// Kills and reaps it: SIGKILL. Does nothing if that is done.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        if let Some(mut leash) = self.leash.take() {
            leash.write_all(b"end\n")?;
        }
        self.shell.wait().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Without the leash the shell does the same and removes the directory as well.
        drop(self.kill());
    }
}

/// Holds the server on a leash: the input ends with the process that holds its other end, even if
/// that is killed. Signals for the whole group, as of a terminal, leave the shell its work. Its
/// output is closed, so that it ends when the server does.
const KEEPER: &str = r#"
trap '' HUP INT QUIT TERM
dir=$1
shift
"$@" 2>&1 &
pid=$!
echo "$pid"
exec >/dev/null
read -r _
orphaned=$?
kill -9 "$pid"
wait "$pid"
[ "$orphaned" -eq 0 ] || rm -rf -- "$dir"
"#;
