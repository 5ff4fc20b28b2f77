//! `completions`: the script for a shell, made from the command line itself.

use clap::{Args, CommandFactory};

use crate::args::Cli;
use crate::exit::Exit;
use crate::output::{Failure, print};

/// Print a completion script for a shell
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete in
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Prints the completion script of a shell.
pub(super) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lockctl", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
