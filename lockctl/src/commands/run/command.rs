//! The command that runs under locks, and the options about it.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, stdin};
use std::time::Duration;

use clap::Args;
use polylock::engine::renewal_interval;
use polylock::{AcquireRequest, Label};
use rustix::process::{Signal, getpgrp};
use rustix::termios::tcgetpgrp;

use crate::args::{EventsTarget, duration, note, signal};
use crate::backend::BackendUrl;
use crate::child::{CommandRules, LostAction, Pgid, Runner, wants_own_group};
use crate::exit::Exit;
use crate::output::{CommandFailure, Console, Events, human};
use crate::waiting::WaitProgress;

/// What `run` and `lead` know of their command.
#[derive(Args, Debug)]
pub(crate) struct CommandArgs {
    /// Command to run, after --
    #[arg(
        last = true,
        required_unless_present = "shell",
        conflicts_with = "shell"
    )]
    command: Vec<OsString>,
    /// Run STRING by $SHELL -c
    #[arg(short = 'c', long, value_name = "STRING")]
    shell: Option<OsString>,
    /// Length of the lease; it is renewed every third of it [default: that of the configuration, or
    /// 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// Time between asking the command to stop and killing it [default: ttl/6, 5s at most]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    kill_after: Option<Duration>,
    /// Signal that asks the command to stop when the lock is lost
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = signal)]
    signal_on_lost: Signal,
    /// Process group of the command
    #[arg(long, value_enum, default_value_t)]
    pgid: Pgid,
    /// Free text that list and inspect show
    #[arg(long, value_name = "TEXT", value_parser = note)]
    note: Option<String>,
    /// Write what happens as JSON lines to a file or an open descriptor
    #[arg(long, value_name = "FILE|fd:N")]
    pub(crate) events: Option<EventsTarget>,
}

impl CommandArgs {
    /// Who this process is, to others.
    pub(crate) fn label(&self) -> Label {
        Label::of_this_process().with_note(self.note.as_deref().unwrap_or_default())
    }

    /// What the command may do under a lease of that length.
    pub(crate) fn rules(&self, ttl: Duration) -> Result<CommandRules, CommandFailure> {
        let is_terminal = stdin().is_terminal();
        let own_group = wants_own_group(self.pgid, is_terminal);
        Ok(CommandRules {
            kill_after: kill_after(ttl, self.kill_after)?,
            max_run: None,
            on_lost: LostAction::Term,
            signal_on_lost: self.signal_on_lost,
            is_service: false,
            own_group,
            terminal_signals: !own_group && (is_terminal || is_in_foreground()),
        })
    }

    /// What runs the command under locks of that request.
    pub(crate) fn runner(
        &self,
        rules: CommandRules,
        request: &AcquireRequest,
        backend: BackendUrl,
        console: &Console,
        events: Events,
    ) -> Runner {
        Runner {
            command: match &self.shell {
                Some(line) => shell(line.clone()),
                None => self.command.clone(),
            },
            rules,
            ttl: request.ttl(),
            label: request.label().clone(),
            events,
            console: console.in_background(),
            backend,
            progress: WaitProgress::default(),
        }
    }
}

/// Whether this process is in the foreground group of its terminal, whatever its standard input is.
fn is_in_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Time that the command gets to stop, which the lease has to have room for.
fn kill_after(ttl: Duration, wanted: Option<Duration>) -> Result<Duration, CommandFailure> {
    let period = renewal_interval(ttl);
    let Some(wanted) = wanted else {
        return Ok((ttl / 6).min(Duration::from_secs(5)));
    };
    if ttl
        .checked_sub(2 * period)
        .is_some_and(|room| wanted <= room)
    {
        return Ok(wanted);
    }
    let message = format!(
        "--kill-after {} does not fit into --ttl {}: a lease lasts for two renewals, each after a \
         third of it, and --kill-after on top",
        human(wanted),
        human(ttl)
    );
    let mut hint = format!("use --kill-after {} or less", human(period));
    let needed = wanted.saturating_mul(3);
    if needed <= AcquireRequest::MAX_TTL {
        hint += &format!(", or --ttl {} or more", human(needed));
    }
    Err(CommandFailure::new(Exit::Usage, message).with_hint(hint))
}

fn shell(line: OsString) -> Vec<OsString> {
    let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty());
    vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_has_room_for_the_end_of_the_command() {
        let secs = Duration::from_secs;
        assert_eq!(kill_after(secs(30), None).unwrap(), secs(5));
        assert_eq!(kill_after(secs(6), None).unwrap(), secs(1));
        assert_eq!(kill_after(secs(30), Some(secs(10))).unwrap(), secs(10));
        assert_eq!(
            kill_after(secs(30), Some(secs(11))).unwrap_err().exit(),
            Exit::Usage
        );
        assert!(kill_after(Duration::MAX, Some(Duration::MAX)).is_err());
    }
}
