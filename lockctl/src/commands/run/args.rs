//! Options of `run`.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use polylock::{Mode, Wait};

use super::{CommandArgs, OnceArgs};
use crate::args::{duration, permits, wait};
use crate::child::LostAction;

/// Run a command while holding one or several locks
///
/// Waits for the locks, runs the command, and releases the locks when it ends. Several keys are
/// acquired all or none. The command is stopped before the lease ends if that cannot be renewed.
#[derive(Args, Debug)]
#[command(
    override_usage = "lockctl run [OPTIONS] <KEY>... -- <COMMAND>...\n       \
                            lockctl run [OPTIONS] <KEY>... --shell <STRING>"
)]
pub(crate) struct RunArgs {
    /// Names of the locks
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) command: CommandArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) mode: ModeArgs,
    #[command(flatten)]
    pub(crate) once: OnceArgs,
    /// Exit code when the lock is held by another client
    #[arg(short = 'E', long, value_name = "N", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// Held by another client is success: exit 0. Does not wait unless -w is given
    #[arg(long, conflicts_with = "conflict_exit_code")]
    pub(crate) skip_if_held: bool,
    /// What a lost lock means for the command
    #[arg(long, value_enum, value_name = "ACTION", default_value_t)]
    pub(crate) on_lost: LostAction,
    /// Exit code when the lock was lost
    #[arg(long, value_name = "N", default_value_t = 79)]
    pub(crate) lost_exit_code: u8,
    /// Min time that the lock stays held, even if the command is faster
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) min_hold: Option<Duration>,
    /// Stop the command after this time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) max_run: Option<Duration>,
}

/// How long to wait.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WaitArgs {
    /// Give up at once if the lock is held
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait at most this long: 500ms, 2s, 1m, a bare number is seconds; or forever [default: that of
    /// the configuration, or forever]
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = wait)]
    pub(crate) wait: Option<Wait>,
}

impl WaitArgs {
    /// The wait that is asked for, if any.
    pub(crate) fn wanted(self) -> Option<Wait> {
        match (self.no_wait, self.wait) {
            (true, _) => Some(Wait::Never),
            (false, wait) => wait,
        }
    }
}

/// Which kind of lock.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ModeArgs {
    /// Share the lock with others that share it
    #[arg(short = 's', long, conflicts_with_all = ["exclusive", "permits"])]
    shared: bool,
    /// Be the only holder, which is the default
    #[arg(short = 'x', long, conflicts_with = "permits")]
    exclusive: bool,
    /// Be one of several holders, while fewer than N hold the lock
    #[arg(long, value_name = "N", value_parser = permits)]
    permits: Option<NonZeroU32>,
}

impl ModeArgs {
    /// The mode that is asked for.
    pub(crate) fn mode(self) -> Mode {
        match (self.shared, self.permits) {
            (true, _) => Mode::Shared,
            (false, Some(limit)) => Mode::Permit { limit },
            (false, None) => Mode::Exclusive,
        }
    }
}
