//! Rules for a command: its time, its process group, and what a lost lock does.

use std::time::Duration;

use clap::ValueEnum;
use rustix::process::Signal;

/// What the command may do, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandRules {
    pub(crate) kill_after: Duration,
    pub(crate) max_run: Option<Duration>,
    pub(crate) on_lost: LostAction,
    pub(crate) signal_on_lost: Signal,
    /// Whether the command is a service: what is left of it when it ends by itself is killed, and a signal that
    /// ends `lockctl` stops it by force. Else both are left to the command.
    pub(crate) is_service: bool,
    /// Whether the command leads a process group of its own.
    pub(crate) own_group: bool,
    /// Whether the terminal sends INT and QUIT to the command itself.
    pub(crate) terminal_signals: bool,
}

/// What happens to the command when the lock is lost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum LostAction {
    /// Stop it before the lease ends, and exit with the lost exit code
    #[default]
    Term,
    /// Say so and let it go on
    Warn,
}

/// The process group that the command runs in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Pgid {
    /// Its own, unless standard input is a terminal
    #[default]
    Auto,
    /// That of lockctl
    Inherit,
    /// Its own
    Own,
}

/// Whether the command gets a process group of its own: a group in the background could not read
/// from the terminal.
pub(crate) fn wants_own_group(pgid: Pgid, stdin_is_terminal: bool) -> bool {
    match pgid {
        Pgid::Auto => !stdin_is_terminal,
        Pgid::Inherit => false,
        Pgid::Own => true,
    }
}
