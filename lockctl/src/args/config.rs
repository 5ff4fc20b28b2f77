use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Check or show a configuration file, or print its schema
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report every error of the file: exit 0 if there are none, 78 if there are
    Check {
        /// File to check [default: that of --config]
        file: Option<PathBuf>,
        /// Backends that nobody uses must be right as well
        #[arg(long)]
        all: bool,
    },
    /// Print the JSON schema of the file, for editors
    Schema,
    /// Print every value and where it comes from, without secrets
    Show {
        /// File to show [default: that of --config]
        file: Option<PathBuf>,
    },
}
