//! `lockctl` runs commands under a lock that others respect, and shows and breaks locks.
//!
//! The manual is `docs/lockctl.md`.

mod args;
mod backend;
mod child;
mod commands;
mod exit;
mod held_keys;
mod logging;
mod output;
mod pattern;
mod waiting;

use std::process::ExitCode;

use crate::args::Cli;
use crate::child::{Exec, Linger};
use crate::exit::Exit;
use crate::output::{CommandFailure, Console};

fn main() -> ExitCode {
    // Before any thread is started: the process is about to become another program.
    if let Some(successor) = Exec::of_arguments(std::env::args_os().skip(1)) {
        let console = successor.console();
        return report(Err(successor.become_it()), &console).into();
    }
    if Linger::is_asked_for(std::env::args_os().skip(1)) {
        return match Linger::stay() {
            Ok(()) => Exit::Success.into(),
            Err(_) => Exit::Internal.into(),
        };
    }
    #[cfg(feature = "bench")]
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == polylock_bench::worker::ARGUMENT)
    {
        return report(commands::worker(), &Console::new(0)).into();
    }
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(answer) => return refuse(answer).into(),
    };
    logging::start(&cli.global);
    let console = Console::new(cli.global.quiet);
    let exit = report(commands::execute(cli.command, cli.global), &console);
    logging::flush();
    exit.into()
}

/// Says why it ends, if that is to be said. A reader that does not read does not hold up the end.
fn report(ended: Result<Exit, CommandFailure>, console: &Console) -> Exit {
    ended.unwrap_or_else(|failure| {
        let console = console.in_background();
        console.fail(&failure);
        console.flush();
        failure.exit()
    })
}

/// Prints what is wrong with the command line; help and version are answers and not errors.
fn refuse(answer: clap::Error) -> Exit {
    let answer = args::with_tip(args::without_secrets(answer), std::env::args_os());
    let env = |name: &str| std::env::var_os(name);
    let answer = args::with_culprit(answer, std::env::args_os(), env);
    drop(answer.print());
    // Not clap's 2, which a command may end with as well.
    if answer.use_stderr() {
        Exit::Usage
    } else {
        Exit::Success
    }
}
