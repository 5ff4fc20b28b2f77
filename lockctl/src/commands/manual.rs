//! `man` and `completions`: what is made from the command line itself.

use std::iter;

use clap::builder::Resettable;
use clap::{Args, CommandFactory};

use crate::args::Cli;
use crate::exit::Exit;
use crate::output::{CommandFailure, print};

/// Print a completion script for a shell
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete in
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

pub(super) fn completions(args: &CompletionsArgs) -> Result<Exit, CommandFailure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lockctl", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}

/// Prints the manual page of `lockctl`, followed by those of its commands.
pub(super) fn man() -> Result<Exit, CommandFailure> {
    let mut command = Cli::command();
    command.build();
    let main = main_command(&command);
    let commands = command
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help");
    let mut page = Vec::new();
    for (at, command) in iter::once(&main).chain(commands).enumerate() {
        clap_mangen::Man::new(command.clone())
            .render(&mut page)
            .map_err(CommandFailure::internal("cannot make the manual page"))?;
        if at == 0 {
            page.extend(sections().into_bytes());
        }
    }
    print(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Success)
}

/// The program without its table of exit codes, for which the page has a section.
fn main_command(command: &clap::Command) -> clap::Command {
    command.clone().after_help(Resettable::Reset)
}

/// The sections of the main page that the command line does not have.
fn sections() -> String {
    let all = [
        ("\"EXIT STATUS\"", EXIT_STATUS),
        ("ENVIRONMENT", ENVIRONMENT),
        ("FILES", FILES),
        ("EXAMPLES", EXAMPLES),
    ];
    let mut out = String::new();
    for (title, entries) in all {
        out += &format!(".SH {title}\n");
        for line in entries.lines() {
            let line = line.replace('-', "\\-");
            let (name, text) = line.split_once(" | ").expect("BUG: a name and a text");
            out += &format!(".TP\n\\fB{name}\\fR\n{text}\n");
        }
    }
    out
}

const EXIT_STATUS: &str = "\
code of the command | The command of run ran to its end.
0 | The answer of a query; a job or a held lock was skipped; a signal ended lead.
128+n | The command of run died from signal n, or signal n ended the wait of run or acquire, or a watch.
1 | The question of break was declined, doctor found a problem, or bench found locks that did not exclude.
64 | The command line is wrong.
65 | Something else than a lock is stored where the lock would be.
69 | The backend is unavailable, or has restarted and grants no locks yet.
70 | Internal error.
75 | Not acquired: the lock is held, or the wait is over. See -E.
77 | The server denies access.
78 | A URL, a file or a variable is wrong, or the backend lacks a feature.
79 | The lock was lost, and the command was stopped or had ended; renew and release found it lost. \
    See --lost-exit-code.
126, 127 | The command is not executable, or not found.";

const ENVIRONMENT: &str = "\
LOCK_URL | URL of the backend, overridden by --backend.
LOCK_CONFIG | Configuration file, overridden by --config.
LOCK_DEFAULT_BACKEND | Backend of the configuration file, overridden by --default-backend.
LOCK_KEY_NAMESPACE | Namespace of all keys, overridden by --namespace.
LOCK_TTL, LOCK_WAIT, LOCK_MAX_HOLD, LOCK_MIN_HOLD | \
    Lock settings, overridden by the options of a command.
LOCK_LEASE | Id of the lease for renew and release.
NO_COLOR | Turns colors off.
LOCK_KEY, LOCK_KEYS, LOCK_FENCING_TOKEN, LOCK_DEADLINE_UNIX_MS | \
    Set for the command of run and lead: its locks, the fencing token and the deadline of the lease.";

const FILES: &str = "\
$XDG_STATE_HOME/polylock/locks.db, ~/.local/state/polylock/locks.db | \
    The SQLite file that keeps the locks if no backend is named.";

const EXAMPLES: &str = "\
lockctl run deploy -- ./deploy.sh | Waits for the lock and runs the script.
lockctl run sync --skip-if-held --min-hold 1m -- /opt/bin/sync | \
    Runs a cron job on one of several hosts.
lockctl run report --once-per 24h -- /opt/bin/report | \
    Runs a cron job once a day, whichever host starts it.
lockctl lead scheduler -- /opt/bin/scheduler | Keeps a service running on one of several hosts.
lockctl run encode --permits 4 -- ffmpeg ... | Runs at most four at a time.
lockctl inspect deploy | Shows holder, fencing token and waiters.
lockctl doctor redis://cache | Checks a server for what silently loses locks.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_page_has_no_section_without_a_name_of_its_own() {
        let mut page = Vec::new();
        let page_of = clap_mangen::Man::new(main_command(&Cli::command()));
        page_of.render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains(".SH EXTRA"), "{page}");
    }

    #[test]
    fn the_manual_has_every_exit_code() {
        let all = [
            Exit::Config,
            Exit::Data,
            Exit::Denied,
            Exit::Internal,
            Exit::Lost,
            Exit::NotAcquired,
            Exit::NotExecutable,
            Exit::NotFound,
            Exit::Unavailable,
            Exit::Usage,
        ];
        for exit in all {
            let code = exit.code().to_string();
            let mut names = EXIT_STATUS
                .lines()
                .filter_map(|line| line.split_once(" | "));
            assert!(names.any(|(name, _)| name.contains(&code)), "{exit:?}");
        }
    }
}
