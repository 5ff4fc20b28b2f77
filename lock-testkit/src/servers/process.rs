use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::network::NetworkHost;

/// A server that ends with this value, and with this process, unless it is [kept](Self::keep).
#[derive(Debug)]
pub(super) struct ServerChild {
    shell: Child,
    /// The shell waits for a line or for the end of this.
    leash: Option<ChildStdin>,
    pid: Pid,
    kept: bool,
}

impl ServerChild {
    /// Starts a program with its arguments, on a host if there is one. The shell that watches it runs
    /// the farewell when the program has ended, and removes `dir` if this process dies before the
    /// value is dropped.
    pub(super) fn start(
        words: &[OsString],
        dir: &Path,
        host: Option<&NetworkHost>,
        farewell: &str,
    ) -> io::Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(dir)
            .arg(farewell)
            .args(host.map(NetworkHost::prefix).unwrap_or_default())
            .args(words)
            // A signal to the test's process group must not reach the shell.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let leash = shell.stdin.take();
        let output = shell.stdout.take();
        let mut line = String::new();
        BufReader::new(output.ok_or_else(|| io::Error::other("no output"))?)
            .read_line(&mut line)?;
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the shell told no process id"))?;
        Ok(Self {
            shell,
            leash,
            pid,
            kept: false,
        })
    }

    /// The id of the server, not of the shell.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        is_in(self.pid, "Z")
    }

    /// Sends a signal to it and to what it has started; after SIGSTOP none of them runs any more.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        kill_process(self.pid, signal)?;
        // One that is about to stop may still start another.
        let wait = |pid| signal != Signal::STOP || stops(pid);
        wait(self.pid);
        let children = self.children()?;
        for child in &children {
            match kill_process(*child, signal) {
                // It has ended by itself.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let all_stopped = children.into_iter().all(wait);
        all_stopped
            .then_some(())
            .ok_or_else(|| io::Error::other("a process does not stop"))
    }

    fn children(&self) -> io::Result<Vec<Pid>> {
        let pid = self.pid.as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let pid_of = |word: &str| Pid::from_raw(word.parse().ok()?);
        Ok(children.split_whitespace().filter_map(pid_of).collect())
    }

    /// Ties its life to the `owner` in place of this process. `common` is removed together with its
    /// own directory.
    pub(super) fn keep(mut self, owner: u32, common: &Path) -> io::Result<()> {
        if let Some(leash) = &mut self.leash {
            writeln!(leash, "keep {owner} {}", common.display())?;
            self.kept = true;
        }
        Ok(())
    }

    /// Kills and reaps it and what it has started: SIGKILL. Does nothing if that is done.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        if let Some(mut leash) = self.leash.take() {
            leash.write_all(b"end\n")?;
        }
        self.shell.wait().map(drop)
    }
}

impl Drop for ServerChild {
    fn drop(&mut self) {
        // Without the leash the shell does the same and removes the directory as well.
        if !self.kept {
            drop(self.kill());
        }
    }
}

/// Waits until this process has obeyed SIGSTOP or has ended.
fn stops(pid: Pid) -> bool {
    let deadline = Instant::now() + STOP_TIMEOUT;
    while Instant::now() < deadline {
        if is_in(pid, "TZ") {
            return true;
        }
        thread::sleep(POLL_INTERVAL);
    }
    false
}

/// Whether a process is in one of these states of proc(5), or gone.
fn is_in(pid: Pid, states: &str) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) else {
        return true;
    };
    states
        .chars()
        .any(|state| stat.contains(&format!(") {state} ")))
}

/// The user of a server that refuses to run as root.
#[derive(Clone, Debug)]
pub(super) enum Account {
    Other { user: u32, group: u32 },
    Own,
}

impl Account {
    /// The first of these users that there is, if this process is root's; else its own, as without
    /// any names.
    pub(super) fn of(names: &[&str]) -> io::Result<Self> {
        if names.is_empty() || !geteuid().is_root() {
            return Ok(Self::Own);
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let found = names.iter().find_map(|name| find(&users, name));
        found.ok_or_else(|| io::Error::other(format!("there is no user of {names:?}")))
    }

    /// Its user's id, for the name of what is made for it.
    pub(super) fn user(&self) -> u32 {
        match self {
            Self::Other { user, .. } => *user,
            Self::Own => geteuid().as_raw(),
        }
    }

    /// Gives it a file or a directory.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Other { user, group } => chown(path, Some(*user), Some(*group)),
            Self::Own => Ok(()),
        }
    }

    /// A program that it runs in this directory.
    pub(super) fn command(&self, program: &Path, dir: &Path) -> Command {
        let mut words = self.words();
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(dir);
        command
    }

    /// A command that runs in a directory.
    pub(super) fn words_in(&self, dir: &Path, words: Vec<OsString>) -> Vec<OsString> {
        let script = r#"cd "$0" && exec "$@""#;
        let mut all = vec!["sh".into(), "-c".into(), script.into(), dir.into()];
        all.extend(self.words());
        all.extend(words);
        all
    }

    /// What becomes a program of the account's.
    fn words(&self) -> Vec<OsString> {
        match self {
            Self::Other { user, group } => vec![
                "setpriv".into(),
                format!("--reuid={user}").into(),
                format!("--regid={group}").into(),
                "--clear-groups".into(),
            ],
            Self::Own => Vec::new(),
        }
    }
}

fn find(users: &str, name: &str) -> Option<Account> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        Some(Account::Other {
            user: fields.nth(1)?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    })
}

/// What a server prints, in its directory: it may outlive the reader of a pipe.
pub(super) const LOG: &str = "log";

const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Runs the server with its output in [`LOG`], and holds it on a leash: the input ends with the process
/// that holds its other end, even if that is killed. Signals of a terminal leave the shell its work. A
/// server that is kept is on the leash of a process that cannot hold its input, so that is looked for
/// every 3 s; a zombie does not count. A server that is stopped starts no further process while those
/// that it has started are looked for.
const KEEPER: &str = r#"
trap '' HUP INT QUIT TERM
dir=$1
farewell=$2
shift 2
"$@" >>"$dir/log" 2>&1 &
pid=$!
echo "$pid"
exec >/dev/null
alive() {
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    case $stat in *') Z '*) return 1 ;; esac
}
common=$dir
read -r order owner shared
orphaned=$?
if [ "$order" = keep ]; then
    while alive "$owner" && alive "$pid"; do sleep 3; done
    orphaned=1
    alive "$owner" || common=$shared
fi
kill -STOP "$pid"
children=$(cat "/proc/$pid/task/"*/children 2>/dev/null)
kill -9 "$pid" $children
wait "$pid"
for child in $children; do
    while alive "$child"; do sleep 0.01; done
done
eval "$farewell"
[ "$orphaned" -eq 0 ] || rm -rf -- "$dir" "$common"
"#;
