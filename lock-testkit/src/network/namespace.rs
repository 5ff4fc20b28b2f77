use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::command::run;
use crate::wait;

/// A network namespace without a name, which ends with this value or with this process, together
/// with all processes in it.
#[derive(Debug)]
pub(super) struct NetworkNamespace {
    keeper: Child,
    /// The keeper waits for the end of this.
    leash: Option<ChildStdin>,
}

impl NetworkNamespace {
    pub(super) fn new() -> io::Result<Self> {
        let mut keeper = Command::new("unshare")
            .args(["--net", "sh", "-c", KEEPER])
            // A signal to the test's process group must not reach the keeper.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| missing("unshare", &error))?;
        let leash = keeper.stdin.take();
        let output = keeper.stdout.take();
        let namespace = Self { keeper, leash };
        let mut line = String::new();
        if let Some(output) = output {
            BufReader::new(output).read_line(&mut line)?;
        }
        let refusal = || io::Error::other("unshare makes no network namespace");
        (line == "ready\n").then_some(namespace).ok_or_else(refusal)
    }

    /// What leads to it, for as long as this value is there.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.keeper.id()))
    }

    pub(super) fn open(&self) -> io::Result<File> {
        File::open(self.path())
    }

    /// Kills the processes in it, and returns when they are gone.
    pub(super) fn kill_all(&self) {
        wait("the processes of a host end", || {
            let processes = self.processes().expect("/proc can be read");
            for pid in &processes {
                match kill_process(*pid, Signal::KILL) {
                    // It has ended by itself.
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(error) => panic!("process {pid:?} cannot be killed: {error}"),
                }
            }
            processes.is_empty()
        });
    }

    /// All but the keeper. A zombie is in no namespace.
    fn processes(&self) -> io::Result<Vec<Pid>> {
        let own = fs::read_link(self.path())?;
        let keeper = self.keeper.id();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let pid = entry.file_name().to_string_lossy().parse::<i32>().ok();
            let Some(pid) = pid.and_then(Pid::from_raw) else {
                continue;
            };
            let is_keeper = pid.as_raw_nonzero().get().unsigned_abs() == keeper;
            let namespace = fs::read_link(entry.path().join("ns/net"));
            if !is_keeper && namespace.is_ok_and(|namespace| namespace == own) {
                found.push(pid);
            }
        }
        Ok(found)
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        drop(self.leash.take());
        drop(self.keeper.wait());
    }
}

/// Moves the calling thread there, for good.
pub(super) fn move_thread(namespace: &File) -> io::Result<()> {
    let only = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(namespace.as_fd(), only)?)
}

/// A program that runs in the network of a namespace, and is the process that is started.
pub(super) fn command_in(namespace: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", namespace.display()));
    command.arg("--").arg(program);
    command
}

/// Runs lines of `ip` in a namespace, or in that of the test process.
pub(super) fn ip(namespace: Option<&NetworkNamespace>, lines: &str) -> io::Result<()> {
    tool(namespace, &["ip", "-batch", "-"], lines).map(drop)
}

/// Runs a program to its end in a namespace, or in that of the test process, and returns what it
/// prints. An error has what it complains of.
pub(super) fn tool(
    namespace: Option<&NetworkNamespace>,
    words: &[&str],
    input: &str,
) -> io::Result<String> {
    let mut command = match namespace {
        Some(namespace) => command_in(&namespace.path(), words[0]),
        None => Command::new(words[0]),
    };
    run(command.args(&words[1..]), input).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing(words[0], &error),
        _ => io::Error::other(format!("{}: {error}{input}", words.join(" "))),
    })
}

/// An error that says which package a program comes with.
pub(super) fn missing(program: &str, error: &io::Error) -> io::Error {
    let package = match program {
        "ip" | "ss" => "iproute2",
        "nft" => "nftables",
        _ => "util-linux",
    };
    let advice = format!("{program}: {error} (apt-get install {package})");
    io::Error::new(error.kind(), advice)
}

/// Keeps the namespace by being in it. Its input ends with the process that holds the other end, even
/// if that is killed. No process of a host stays, since that would keep the namespace.
const KEEPER: &str = r#"
trap '' HUP INT QUIT TERM
echo ready
exec >/dev/null
read -r _
found=1
while [ "$found" ]; do
    found=
    for namespace in /proc/[0-9]*/ns/net; do
        [ "$namespace" -ef "/proc/$$/ns/net" ] || continue
        pid=${namespace#/proc/}
        pid=${pid%%/*}
        [ "$pid" = $$ ] || { kill -9 "$pid"; found=1; }
    done
    [ -z "$found" ] || sleep 0.01
done
"#;
