//! What the options of `run` amount to.

use std::env;
use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::time::Duration;

use polylock::engine::renewal_interval;
use polylock::{AcquireRequest, Label, LockKey, Wait};

use super::RunArgs;
use crate::backend::BackendUrl;
use crate::child::{Rules, wants_own_group};
use crate::exit::Exit;
use crate::output::{Failure, human};

/// What the options amount to.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) keys: Vec<LockKey>,
    /// The options for all of the keys; its key is the first of them.
    pub(super) request: AcquireRequest,
    pub(super) rules: Rules,
    pub(super) command: Vec<OsString>,
    pub(super) own_group: bool,
    pub(super) args: RunArgs,
}

impl Plan {
    pub(super) fn new(args: RunArgs, backend: &BackendUrl) -> Result<Self, Failure> {
        let keys = args
            .keys
            .iter()
            .map(|key| super::super::key(key))
            .collect::<Result<Vec<_>, _>>()?;
        let label = Label::of_this_process().with_note(args.note.as_deref().unwrap_or_default());
        // Without a configuration it waits for ever, and the life of the command is the limit.
        let request = AcquireRequest::new(keys[0].clone())
            .with_wait(Wait::Forever)
            .with_max_hold(None)
            .with_mode(args.mode.mode())
            .with_label(label);
        let mut request = backend.lock_settings().apply(request);
        let skipping = args.skip_if_held.then_some(Wait::Never);
        if let Some(wait) = args.wait.wanted().or(skipping) {
            request = request.with_wait(wait);
        }
        if let Some(ttl) = args.ttl {
            request = request.with_ttl(ttl);
        }
        if let Some(min_hold) = args.min_hold {
            request = request.with_min_hold(min_hold);
        }
        let request = backend.in_class(request);
        request.validate()?;
        let own_group = wants_own_group(args.pgid, stdin().is_terminal());
        let rules = Rules {
            kill_after: kill_after(request.ttl(), args.kill_after)?,
            max_run: args.max_run,
            on_lost: args.on_lost,
            signal_on_lost: args.signal_on_lost,
            terminal_signals: !own_group && stdin().is_terminal(),
        };
        let command = match &args.shell {
            Some(line) => shell(line.clone()),
            None => args.command.clone(),
        };
        Ok(Self {
            keys,
            request,
            rules,
            command,
            own_group,
            args,
        })
    }
}

/// Time that the command gets to stop, which the lease has to have room for.
fn kill_after(ttl: Duration, wanted: Option<Duration>) -> Result<Duration, Failure> {
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
    Err(Failure::new(Exit::Usage, message).with_hint(format!(
        "use --kill-after {} or less, or --ttl {} or more",
        human(period),
        human(wanted.saturating_mul(3))
    )))
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
