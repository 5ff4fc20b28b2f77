//! Connections that outlive `lockctl` until its command is dead.
//!
//! The kernel closes the sockets of a process that is killed before it kills the children, and a
//! server frees a lock that lives with a connection as soon as that is closed. So a second process
//! has the sockets as well, and ends after the command.

use std::io::{self, BufRead, Read, Write, stdin};
use std::process::{Child, ChildStdin};

use rustix::process::{Pid, Signal};
use tokio::signal::unix::{SignalKind, signal};

/// The process that keeps the connections of this one open.
#[derive(Debug)]
pub(crate) struct Linger {
    process: Child,
    /// Closed by the end of this process, however it comes.
    alive: ChildStdin,
}

impl Linger {
    /// Starts the process, which gets all sockets that are open.
    ///
    /// Fails where the system has no `pidfd_getfd` or does not allow it: the locks are as good without,
    /// but for the moment between the end of `lockctl` and that of its command.
    pub(crate) fn start() -> io::Result<Self> {
        let mut process = sys::start()?;
        let alive = process.stdin.take().expect("BUG: the input is a pipe");
        Ok(Self { process, alive })
    }

    /// Says which command is to be outlived.
    pub(crate) fn outlive(&mut self, command: Pid) -> io::Result<()> {
        writeln!(self.alive, "{}", command.as_raw_nonzero())
    }

    /// Whether these arguments, without the name of the program, ask for this process.
    pub(crate) fn is_asked_for(mut args: impl Iterator<Item = std::ffi::OsString>) -> bool {
        args.next().is_some_and(|first| first == LINGER)
    }

    /// What the process does: it waits for the end of its parent and then for that of the command.
    ///
    /// It outlasts what stops the command and `lockctl`: job control, and signals to a whole group.
    pub(crate) fn stay() -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let _ignored = {
            let _inside = runtime.enter();
            IGNORED
                .into_iter()
                .map(|number| signal(SignalKind::from_raw(number)))
                .collect::<io::Result<Vec<_>>>()?
        };
        let mut input = stdin().lock();
        let mut line = String::new();
        input.read_line(&mut line)?;
        let command = line.trim().parse().ok().and_then(Pid::from_raw);
        // Opened while the parent lives, since another process may have the number later.
        let command = command.map(sys::ProcessHandle::open).transpose()?;
        input.read_to_end(&mut Vec::new())?;
        command.map_or(Ok(()), |command| command.wait())
    }
}

/// The command has ended, or was not begun.
impl Drop for Linger {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

pub(super) const LINGER: &str = "__linger";
const IGNORED: [i32; 5] = [
    Signal::HUP.as_raw(),
    Signal::INT.as_raw(),
    Signal::QUIT.as_raw(),
    Signal::TERM.as_raw(),
    Signal::TSTP.as_raw(),
];

#[cfg(target_os = "linux")]
mod sys {
    use std::fs;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::{Errno, FdFlags, fcntl_setfd};
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    pub(super) fn start() -> io::Result<Child> {
        let sockets = sockets()?;
        for socket in &sockets {
            fcntl_setfd(socket, FdFlags::empty())?;
        }
        Command::new("/proc/self/exe")
            .arg(super::LINGER)
            // It has no use for URLs and passwords.
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Signals of the terminal are for the command.
            .process_group(0)
            .spawn()
    }

    /// Duplicates of the sockets of this process, apart from standard streams.
    fn sockets() -> io::Result<Vec<OwnedFd>> {
        let this = pidfd_open(getpid(), PidfdFlags::empty())?;
        let mut sockets = Vec::new();
        for entry in fs::read_dir("/proc/self/fd")? {
            let entry = entry?;
            let number = entry.file_name().to_string_lossy().parse::<i32>();
            let is_socket = fs::read_link(entry.path())
                .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
            if let (Ok(number @ 3..), true) = (number, is_socket) {
                sockets.push(pidfd_getfd(&this, number, PidfdGetfdFlags::empty())?);
            }
        }
        Ok(sockets)
    }

    pub(super) struct ProcessHandle(OwnedFd);

    impl ProcessHandle {
        pub(super) fn open(pid: Pid) -> io::Result<Self> {
            Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
        }

        /// Waits for its end, also if it is not a child.
        pub(super) fn wait(&self) -> io::Result<()> {
            loop {
                match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                    Err(Errno::INTR) => {}
                    ended => return Ok(ended.map(drop)?),
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod sys {
    use std::io;
    use std::process::Child;

    use rustix::process::Pid;

    pub(super) fn start() -> io::Result<Child> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) struct ProcessHandle;

    impl ProcessHandle {
        pub(super) fn open(_: Pid) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn wait(&self) -> io::Result<()> {
            Ok(())
        }
    }
}
