//! How the command is started.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anstream::ColorChoice;
use clap::ValueEnum;
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::environment::Variable;
use super::processes::{CommandProcesses, POLL_INTERVAL};
use crate::args::Color;
use crate::exit::Exit;
use crate::logging::set_color;
use crate::output::{CommandFailure, Console, escaped, path_text};

#[derive(Debug)]
pub(crate) struct RunningCommand {
    pub(crate) child: Child,
    pub(crate) pid: Pid,
    pub(super) processes: CommandProcesses,
    /// Whether it was said that it cannot be sent signals.
    pub(super) is_out_of_reach: AtomicBool,
    ended_at: Option<Instant>,
    /// Processes that it has left behind and that were asked to end.
    asked: Vec<Pid>,
}

impl RunningCommand {
    /// Waits for the end of the command. If it was asked to end, by a signal of the terminal or another one, the
    /// processes that it has left behind are asked as well, and have so much more time.
    /// Cancel safety: nothing is lost: the status is kept, and the time goes on.
    pub(super) async fn ended(
        &mut self,
        rest_within: Duration,
        is_of_terminal: bool,
    ) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.processes.reaped();
        let ended_at = *self.ended_at.get_or_insert_with(Instant::now);
        while ended_at.elapsed() < rest_within && self.processes.is_alive() {
            self.processes.ask_the_rest(is_of_terminal, &mut self.asked);
            sleep(POLL_INTERVAL).await;
            self.processes.reaped();
        }
        Ok(status)
    }
}

/// Starts the command; standard streams and directory are inherited. That it cannot be executed is said as
/// `console` would.
///
/// Call it on the main thread: the command dies with the thread that started it.
pub(crate) fn spawn(
    command: &[OsString],
    variables: Vec<Variable>,
    own_group: bool,
    console: &Console,
) -> Result<RunningCommand, CommandFailure> {
    let color = match ColorChoice::global() {
        ColorChoice::Always => "always",
        ColorChoice::Never => "never",
        _ => "auto",
    };
    let mut starter = starter(command, &[&console.quiet.to_string(), color]);
    for (name, value) in variables {
        match value {
            Some(value) => starter.env(name, value),
            None => starter.env_remove(name),
        };
    }
    if own_group {
        starter.process_group(0);
    }
    let processes = CommandProcesses::before(own_group);
    let child = starter.stdin(Stdio::inherit()).kill_on_drop(true).spawn();
    let child = child.map_err(|e| cannot_execute(&command[0], &e))?;
    let pid = child
        .id()
        .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let pid = pid.expect("BUG: a child that nobody waited for has an id");
    Ok(RunningCommand {
        child,
        pid,
        processes: processes(pid),
        is_out_of_reach: AtomicBool::new(false),
        ended_at: None,
        asked: Vec::new(),
    })
}

/// This program again, which asks to be killed with its parent and then becomes the command.
#[cfg(target_os = "linux")]
fn starter(command: &[OsString], options: &[&str; 2]) -> Command {
    if !std::path::Path::new(THIS_PROGRAM).exists() {
        return direct(command);
    }
    let mut starter = Command::new(THIS_PROGRAM);
    let parent = rustix::process::getpid().as_raw_nonzero().to_string();
    starter.args([EXEC, &parent]).args(options).args(command);
    starter
}

/// Also right when the file was replaced or removed in the meantime.
#[cfg(target_os = "linux")]
const THIS_PROGRAM: &str = "/proc/self/exe";

#[cfg(not(target_os = "linux"))]
fn starter(command: &[OsString], _: &[&str; 2]) -> Command {
    direct(command)
}

fn direct(command: &[OsString]) -> Command {
    let mut starter = Command::new(&command[0]);
    starter.args(&command[1..]);
    starter
}

/// What the process becomes that was started as `lockctl __exec PARENT QUIET COLOR COMMAND...`.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Exec {
    parent: i32,
    quiet: u8,
    color: Color,
    command: Vec<OsString>,
}

impl Exec {
    /// Reads the arguments without the program's name; `None` if they are those of a user.
    pub(crate) fn of_arguments(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        args.next().filter(|first| first == EXEC)?;
        let mut word = || args.next()?.into_string().ok();
        let (parent, quiet) = (word()?.parse().ok()?, word()?.parse().ok()?);
        let color = Color::from_str(&word()?, false).ok()?;
        let command: Vec<_> = args.collect();
        (!command.is_empty()).then_some(Self {
            parent,
            quiet,
            color,
            command,
        })
    }

    /// The console of the `lockctl` that started the process.
    pub(crate) fn console(&self) -> Console {
        set_color(self.color);
        Console::new(self.quiet)
    }

    /// Becomes the command, which is killed when the thread ends that started it. Returns only
    /// why that is impossible.
    pub(crate) fn become_it(self) -> CommandFailure {
        if let Err(failure) = die_with(self.parent) {
            return failure;
        }
        let name = &self.command[0];
        let error = std::process::Command::new(name)
            .args(&self.command[1..])
            .exec();
        cannot_execute(name, &error)
    }
}

const EXEC: &str = "__exec";

#[cfg(target_os = "linux")]
fn die_with(parent: i32) -> Result<(), CommandFailure> {
    use rustix::process::{getppid, set_parent_process_death_signal};

    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| {
        CommandFailure::new(Exit::Internal, "cannot tie the command to lockctl").with_cause(&e)
    })?;
    // The parent may have died before the kernel knew that this matters.
    match getppid().map(|pid| pid.as_raw_nonzero().get()) {
        Some(pid) if pid == parent => Ok(()),
        _ => Err(CommandFailure::new(
            Exit::Internal,
            "lockctl ended before the command began",
        )),
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_: i32) -> Result<(), CommandFailure> {
    Ok(())
}

fn cannot_execute(command: &OsStr, error: &io::Error) -> CommandFailure {
    let name = escaped(&path_text(command.as_ref()));
    match error.kind() {
        io::ErrorKind::NotFound => {
            CommandFailure::new(Exit::NotFound, format!("{name}: command not found"))
        }
        _ => CommandFailure::new(Exit::NotExecutable, format!("{name} cannot be executed")),
    }
    .with_cause(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lockctl_itself_asks_for_a_successor() {
        let read = |args: &[&str]| Exec::of_arguments(args.iter().map(OsString::from));
        let command = vec!["ls".into(), "--".into()];
        let successor = Exec {
            parent: 7,
            quiet: 2,
            color: Color::Never,
            command,
        };
        let line = ["__exec", "7", "2", "never", "ls", "--"];
        assert_eq!(read(&line), Some(successor));
        assert_eq!(read(&["run", "7", "2", "never", "ls"]), None);
        assert_eq!(read(&line[..4]), None);
        assert_eq!(read(&[]), None);
    }
}
