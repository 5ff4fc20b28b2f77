//! `lockctl` runs commands under a lock that others respect, and shows and breaks locks.
//!
//! The manual is `docs/lockctl.md`.

mod args;
mod backend;
mod child;
mod commands;
mod events;
mod exit;
mod held;
mod logging;
mod messages;
mod output;
mod pattern;
mod text;
mod waiting;
mod writer;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::exit::Exit;
use crate::messages::Console;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // Help and version are answers and not errors; a command may well end with clap's 2.
            drop(answer.print());
            return if answer.use_stderr() {
                Exit::Usage
            } else {
                Exit::Success
            }
            .into();
        }
    };
    logging::start(&cli.global);
    let console = Console::new(cli.global.quiet);
    match commands::execute(cli.command, cli.global) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            console.fail(&failure);
            failure.exit().into()
        }
    }
}
