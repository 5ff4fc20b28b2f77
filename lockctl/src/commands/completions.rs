//! `completions`: the script for a shell, made from the command line itself.

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
