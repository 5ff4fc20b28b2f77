//! `completions` and `man`, which are made from the command line itself.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::exit::Exit;
use crate::messages::Failure;
use crate::output::print;

/// Prints the completion script of a shell.
pub(super) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lockctl", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}

/// Prints the manual page of `lockctl`, followed by those of its commands.
pub(super) fn man() -> Result<Exit, Failure> {
    let mut command = Cli::command();
    command.build();
    let commands = command
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help");
    let mut page = Vec::new();
    let pages = std::iter::once(&command).chain(commands);
    for command in pages {
        clap_mangen::Man::new(command.clone())
            .render(&mut page)
            .map_err(|e| {
                Failure::new(Exit::Internal, "cannot make the manual page").with_cause(&e)
            })?;
    }
    print(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Success)
}
